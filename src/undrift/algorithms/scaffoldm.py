"""SCAFFOLD/m: SCAFFOLD whose clients send their models only."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.algorithms.scaffold import ControlVariates
from undrift.core import Client, RoundFacts, Struct, Vector, choice


@dataclass(frozen=True)
class SCAFFOLDm(ControlVariates):
    """SCAFFOLD, option 2, whose clients send their model only.

    The server finds Σ Δc_i from the mean update ḡ: c ← (N−p)/N c + p/(N K η) ḡ, which equals
    SCAFFOLD as long as all clients have the same weight and take the same number of steps.

    Cost: n kept by the server and by each client; 2n down, n up.
    Deviations: `form="printed"` has the factor (N−1)/N of AdaBest's Algorithm 1, right only for
    p = 1; it diverges and is kept as a curiosity.
    Reference: Varno et al., AdaBest, ECCV 2022, Algorithm 1, https://arxiv.org/abs/2204.13170.

    >>> undrift.algorithm("SCAFFOLD/m")
    SCAFFOLDm()
    """

    _: KW_ONLY
    form: str = choice("exact", "printed")

    even_steps = True

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        delta = down.x - local.y
        return Struct(delta=delta), Struct(c=me.c - down.c + delta / (client.steps * client.lr))

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        p, N = round.cohort, round.population
        keep = (N - p) / N if self.form == "exact" else (N - 1) / N
        return d, changes | Struct(c=keep * s.c + p / (N * round.steps * round.lr) * mean.raw)
