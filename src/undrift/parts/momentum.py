"""Momentum: clients lean the way that all clients went in the last round."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.core import Algorithm, Client, Grad, Part, RoundFacts, Struct, Vector, real


@dataclass(frozen=True)
class Momentum(Part):
    """Mixes the mean step of the last round, m, into every local direction.

    client  q = α d + (1 − α) m,  d the direction of the inner algorithm
    server  m ← ḡ/(ηK),  with η and K of the round that made ḡ; m starts at 0

    FedAvg inside is FedCM, which Cheng et al. call FedAvg-M; SCAFFOLD inside is their SCAFFOLD-M.
    An inner algorithm that recovers gradients from updates, as SCAFFOLD does, is given the update
    that its own directions alone would have made, (x − y − (1−α)ηK m)/α.

    Neutral: alpha=1.
    Cost: n kept by the server; n more down.
    Deviations: none known; Cheng et al. could be read in parts only. With unequal K_i, K is their
    weighted mean.
    Reference: Xu et al., FedCM: Federated learning with client-level momentum, 2021,
    https://arxiv.org/abs/2106.10874; Cheng et al., Momentum benefits non-IID federated learning
    simply and provably, ICLR 2024, https://arxiv.org/abs/2306.16504.

    >>> undrift.algorithm("Momentum(SCAFFOLD(), alpha=0.2)")
    Momentum(SCAFFOLD(), alpha=0.2)
    """

    alpha: float = real(0.1, gt=0, le=1, tune="log(0.03, 1)")

    even_steps = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.core).move is not Algorithm.move:
            name = type(self.core).__name__
            self.refuse(f"{name} has a way of its own to take local steps", inner=self.inner)

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return self.inner.init_server(x, groups) | Struct(momentum=Struct(m=0 * x))

    def download(self, s: Struct) -> Struct:
        return self.inner.download(s) | Struct(momentum=s.momentum)

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        d = self.inner.direction(grad, local, down, me, client)
        return self.alpha * d + (1 - self.alpha) * down.momentum.m

    def without(self, g: Vector, m: Vector, work: float) -> Vector:
        """What an update g of ηK = `work` would be if m had not been mixed in."""
        return (g - (1 - self.alpha) * work * m) / self.alpha

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        if not self.inner.even_steps:
            return self.inner.upload(local, down, me, client)
        g = down.x - local.y
        own = self.without(g, down.momentum.m, client.lr * client.steps)
        up, kept = self.inner.upload(local | Struct(y=down.x - own), down, me, client)
        return up | Struct(delta=g), kept

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        work = round.lr * round.steps
        own = mean
        if self.inner.even_steps:
            own = mean | Struct(raw=self.without(mean.raw, s.momentum.m, work))
        d, changes = self.inner.update(s, own, round)
        return d, changes | Struct(momentum=Struct(m=mean.raw / work))  # m ← ḡ/(ηK)
