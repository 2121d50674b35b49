"""Parts that change local training: Prox, Clip, LocalOpt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from undrift.core import Algorithm, Client, Grad, Part, RoundFacts, Struct, Vector, member, real
from undrift.optim import HeavyBall, Optimiser


@dataclass(frozen=True)
class Prox(Part):
    """Adds a pull mu (y - x) towards the cloud model to the local direction. Neutral: mu=0.

    It is that of FedProx, https://arxiv.org/abs/1812.06127.

    >>> undrift.algorithm("Prox(AdaBest(), mu=0.1)")
    Prox(AdaBest(mu=0.02, beta=0.96), mu=0.1)
    """

    mu: float = real(0.01, ge=0, tune="log(0.001, 1)")

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        d = self.inner.direction(grad, local, down, me, client)
        return d + self.mu * (local.y - down.x)


@dataclass(frozen=True)
class Clip(Part):
    """Shortens the local direction, corrections included, to a norm of at most `norm`.

    FedDyn's code clips like this at 10; the idea is in https://arxiv.org/abs/1211.5063.
    Neutral: norm=inf.

    >>> undrift.algorithm("Clip(FedDyn(), norm=10)")
    Clip(FedDyn(mu=0.02), norm=10.0)
    """

    norm: float = real(10.0, gt=0, infinite=True, tune="log(0.1, 100)")

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        d = self.inner.direction(grad, local, down, me, client)
        return d / (d.norm() / self.norm).clamp(min=1.0)


@dataclass(frozen=True)
class LocalOpt(Part):
    """Clients step with an optimiser of their own, fresh in every round; v starts at 0.

    FedGLAD's experiments (https://arxiv.org/abs/2301.10400) use HeavyBall(beta=0.9) on images and,
    on text, torch's Adam, which is Adam(beta2=0.999, eps=1e-8, bias_correction=True). The step size
    is the local learning rate times the optimiser's `lr`. Algorithms that divide an update by Kη to
    have a mean gradient are told the η of steps of SGD that go as far. Neutral: SGD().

    >>> undrift.algorithm("LocalOpt(FedAvg(), Adam(beta2=0.999))")
    LocalOpt(FedAvg(), Adam(beta2=0.999))
    """

    optimiser: Optimiser = member(Optimiser, HeavyBall())

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.core).move is not Algorithm.move:
            name = type(self.core).__name__
            self.refuse(f"{name} has a way of its own to take local steps", inner=self.inner)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        stats = self.optimiser.init(down.x, v0=0.0)
        return self.inner.begin(down, me, client) | Struct(local_opt=stats)

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        step, stats = self.optimiser.step(local.local_opt, d)
        moved = self.inner.move(local, self.optimiser.lr * step, down, client)
        return moved | Struct(local_opt=stats)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        gain = self.optimiser.gain(client.steps)
        worked = replace(client, lr=gain * client.lr, lr0=gain * client.lr0)
        return self.inner.upload(local, down, me, worked)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        gain = self.optimiser.gain(round.steps)
        worked = replace(round, lr=gain * round.lr, lr0=gain * round.lr0)
        return self.inner.update(s, mean, worked)
