"""Extrapolate: the server goes on in the direction of its last steps."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from undrift.core import Client, Part, RoundFacts, Struct, Vector, real
from undrift.parts.server_opt import ServerOpt
from undrift.vectors import effective_updates, safe_beta


@dataclass(frozen=True)
class Extrapolate(Part):
    """AdaBest's server rule around an algorithm whose server makes a plain step d.

    θ̄ᵗ = θᵗ⁻¹ − dᵗ    hᵗ = β(θ̄ᵗ⁻¹ − θ̄ᵗ)    θᵗ = θ̄ᵗ − hᵗ

    `beta="auto"` chooses beta in each round from how much the updates agree and how often clients
    come back, as in AdaBest (`undrift.vectors.safe_beta`). The aggregate model θ̄ is deployed.

    Neutral: beta=0.
    Cost: n kept by the server; n down and n up as the inner algorithm (if auto, two numbers more
    up and one kept by each client).
    Deviations: ours, from the server's half of AdaBest.
    Reference: Varno et al., as in AdaBest, https://arxiv.org/abs/2204.13170.

    >>> undrift.algorithm("extrapolate+scaffold")
    Extrapolate(SCAFFOLD())
    """

    _: KW_ONLY
    beta: float | str = real("auto", ge=0, le=1, word="auto")

    rank = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.inner
        while isinstance(inner, Part):
            if isinstance(inner, ServerOpt):
                self.refuse("a server optimiser has momentum of its own", inner=self.inner)
            inner = inner.inner
        if inner.deploys == "aggregate":
            self.refuse(f"the server of {type(inner).__name__} goes on by itself", inner=self.inner)

    @property
    def deploys(self) -> Literal["cloud", "aggregate"]:
        return "aggregate"

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        own = Struct(h=0 * x, beta=0.0)
        if self.beta == "auto":
            own |= Struct(updates=0.0)
        return self.inner.init_server(x, groups) | Struct(extrapolate=own)

    def init_client(self, x: Vector) -> Struct:
        me = self.inner.init_client(x)
        return me | Struct(extrapolate=Struct(t=0)) if self.beta == "auto" else me

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        up, kept = self.inner.upload(local, down, me, client)
        if self.beta == "auto":
            own = Struct(square=up.delta @ up.delta, age=client.t - me.extrapolate.t)
            up, kept = up | Struct(extrapolate=own), kept | Struct(extrapolate=Struct(t=client.t))
        return up, kept

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = self.inner.update(s, mean, round)
        beta, own = self.beta, Struct()
        if beta == "auto":
            told = mean.extrapolate
            updates = effective_updates(told.square, mean.raw, round.cohort)
            beta, own = safe_beta(updates, round.cohort, told.age), Struct(updates=updates)
        xbar = s.x - d
        h = beta * (s.xbar - xbar)
        return d + h, changes | Struct(xbar=xbar, extrapolate=Struct(h=h, beta=beta) | own)

    def correction(self, s: Struct) -> Vector:
        return s.extrapolate.h
