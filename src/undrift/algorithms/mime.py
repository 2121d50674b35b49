"""Mime and MimeLite: an unbiased global optimiser, learned from full gradients."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.algorithms.shared_statistics import StillStatistics
from undrift.core import Client, Grad, RoundFacts, Struct, Vector, choice


@dataclass(frozen=True)
class MimeLite(StillStatistics):
    """Clients step with statistics held still; these track the cohort's full gradient at x.

    s ← T(c),  c = Σ w_i ∇L_i(x)

    `gradient="batch"` sends the gradient of one mini-batch, the first of the round, instead of the
    full one (MimeXlite in FedGBO's code).

    Neutral: SGDm(beta=0).
    Cost: |s| kept by the server; n + |s| down, 2n up, one more pass over each client's data.
    Deviations: none; v starts at 1.
    Reference: Karimireddy et al., Breaking the centralized barrier for cross-device federated
    learning, NeurIPS 2021, https://arxiv.org/abs/2008.03606.

    >>> undrift.algorithm("mimelite")
    MimeLite(SGDm())
    """

    _: KW_ONLY
    gradient: str = choice("full", "batch")

    def gradient_at(self, x: Vector, client: Client) -> Vector:
        return (client.full_grad if self.gradient == "full" else client.first_grad)(x)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        return Struct(delta=down.x - local.y, c=self.gradient_at(down.x, client)), me

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        return d, changes | Struct(stats=self.optimiser.track(s.stats, mean.c))


@dataclass(frozen=True)
class Mime(MimeLite):
    """MimeLite whose local gradients are corrected by the cohort's full gradient c as well.

    d = ∇L_i(y; ζ) − ∇L_i(x; ζ) + c, with one mini-batch ζ in both places

    c must be known before local work, so a round has two exchanges with the same cohort.

    Cost: |s| kept by the server; 2n + |s| down, 2n up, two gradients a step and one more pass.
    Deviations and reference: as MimeLite. See https://arxiv.org/abs/2008.03606.

    >>> undrift.algorithm("Mime(Adam())")
    Mime(Adam())
    """

    surveys = True

    def survey(self, down: Struct, me: Struct, client: Client) -> Struct:
        return Struct(c=self.gradient_at(down.x, client))

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        return grad(local.y) - grad(down.x) + down.c

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        return Struct(delta=down.x - local.y), me
