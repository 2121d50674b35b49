"""FedAU: clients that come seldom count for more."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.core import Algorithm, Client, RoundFacts, Struct, Vector, Weights, whole


@dataclass(frozen=True)
class FedAU(Algorithm):
    """Updates are weighted by the mean number of rounds between a client's participations.

    x ← x − (1/N) Σ_P ω_i g_i,  ω_i the mean of client i's gaps so far (1 before the first)

    cut  longest gap: one that is longer counts as several, as if the client had been there
    m_i  number of gaps (`me.count`)          t_i  when the last one ended (`me.t`)

    The gap that a participation ends is known afterwards only: it does not count in its own round.
    Gaps add up to t_i, so ω_i = t_i/m_i.

    Cost: two numbers kept by each client; n down, n and one number up.
    Deviations: none known; that long gaps count as several is from the authors' code. `cut` is
    100000 there; 50, of the paper's experiments, is not checked against its text.
    Reference: Wang et al., A lightweight method for tackling unknown participation statistics in
    federated averaging, ICLR 2024, https://arxiv.org/abs/2306.03401.

    >>> undrift.algorithm("FedAU(cut=20)")
    FedAU(cut=20)
    """

    cut: int = whole(50, ge=1)

    @property
    def weights(self) -> Weights:
        return "uniform"

    def init_client(self, x: Vector) -> Struct:
        return Struct(count=0, t=0)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        cuts = (client.t - me.t - 1) // self.cut  # full gaps since, before this round
        count, t = me.count + cuts, me.t + cuts * self.cut
        none = count == 0
        weight = (t + none) / (count + none)  # ω_i = t_i/m_i
        up = Struct(delta=down.x - local.y, weight=weight)
        return up, Struct(count=count + 1, t=client.t)

    def receive(self, s: Struct, up: Struct, groups: tuple[int, ...]) -> Struct:
        return up | Struct(delta=up.weight * up.delta)  # ω_i g_i

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d = (round.cohort / round.population) * mean.delta
        return d, Struct(xbar=s.x - d)
