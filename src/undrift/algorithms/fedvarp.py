"""FedVARP and MIFA: the last updates of absent clients stand in for those that are missing."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.core import Algorithm, Client, RoundFacts, Struct, Vector, Weights


@dataclass(frozen=True)
class FedVARP(Algorithm):
    """Each client remembers its last update u_i; the server knows their mean ū over all clients.

    v_i = ū + g_i − u_i    x ← x − mean of v_i
    u_i ← g_i              ū ← ū + (p/N) · mean of (g_i − u_i)

    A client sends g_i − u_i and the server adds ū on arrival, so that FedGLAD, IDA and their like
    see the v_i. ū learns from what FedGLAD has not rescaled.

    Cost: n kept by the server and by each client; n down, n up.
    Deviations: the paper's server keeps all u_i; here the clients do. Updates are remembered as
    they are (as in FedAU's code), where the papers divide by η: the same as long as η is constant.
    ū is the mean of all u_i as long as no part around it changes the weights. Metrics of drift see
    what is sent, g_i − u_i.
    Reference: Jhunjhunwala et al., FedVARP: Tackling the variance due to partial client
    participation in federated learning, UAI 2022, https://arxiv.org/abs/2207.14130.

    >>> undrift.algorithm("fedvarp")
    FedVARP()
    """

    @property
    def weights(self) -> Weights:
        return "uniform"

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return super().init_server(x, groups) | Struct(u=0 * x)

    def init_client(self, x: Vector) -> Struct:
        return Struct(u=0 * x)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        g = down.x - local.y
        return Struct(delta=g - me.u), Struct(u=g)

    def receive(self, s: Struct, up: Struct, groups: tuple[int, ...]) -> Struct:
        return up | Struct(delta=s.u + up.delta)  # v_i = ū + g_i − u_i

    def remembered(self, s: Struct, v: Vector, round: RoundFacts) -> Vector:
        """ū after a round in which the mean of the v_i was v."""
        return s.u + (round.cohort / round.population) * (v - s.u)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        return d, changes | Struct(u=self.remembered(s, mean.raw, round))

    def correction(self, s: Struct) -> Vector:
        return s.u


@dataclass(frozen=True)
class MIFA(FedVARP):
    """FedVARP whose step is the new mean ū of all clients' last updates: x ← x − ū.

    Cost: as FedVARP.
    Deviations: as FedVARP; clients that were never seen count with u_i = 0, where the paper's
    analysis lets all take part in the first round.
    Reference: Gu et al., Fast federated learning in the presence of arbitrary device
    unavailability, NeurIPS 2021, https://arxiv.org/abs/2106.04159.

    >>> undrift.algorithm("mifa")
    MIFA()
    """

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d = self.remembered(s, mean.delta, round)
        return d, Struct(xbar=s.x - d, u=self.remembered(s, mean.raw, round))
