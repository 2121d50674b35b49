"""FedExP: the server extrapolates by how much the updates differ."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from undrift.core import Part, RoundFacts, Struct, Vector, choice, real
from undrift.parts.server_opt import ServerOpt
from undrift.parts.similarity import Similarity


@dataclass(frozen=True)
class FedExP(Similarity):
    """Lengthens the mean update before the server's rule sees it.

    ζ = max(1, Σ w_k ||g_k||² / (2 (||ḡ||² + ε)))    ĝ = ζ ḡ, what the inner algorithm gets

    With GSI of FedGLAD it is max(1, GSI²/2) apart from ε. The mean of the last two cloud models,
    (xᵗ + xᵗ⁻¹)/2, is deployed; it is `server.xbar`. `form="code"` has p ε(η_t/η)² instead of ε, as
    the authors' code, with p clients in the round.

    Neutral: eps=inf.
    Cost: one number kept by the server; no traffic.
    Deviations: where all updates are 0, ζ = 1. The code deploys x itself after the first round, and
    has a rule of its own for server momentum; server optimisers are refused here.
    Reference: Jhunjhunwala et al., FedExP: Speeding up federated averaging via extrapolation, ICLR
    2023, https://arxiv.org/abs/2301.09604.

    >>> undrift.algorithm("FedExP(SCAFFOLD(), eps=0.1)")
    FedExP(SCAFFOLD(), eps=0.1)
    """

    _: KW_ONLY
    eps: float = real(1e-3, ge=0, infinite=True, tune="log(0.0001, 1)")
    form: str = choice("paper", "code")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.deploys == "aggregate":
            self.refuse("the server of the inner algorithm goes on by itself", inner=self.inner)
        inner = self.inner
        while isinstance(inner, Part):
            if isinstance(inner, ServerOpt):
                self.refuse("a server optimiser has a step size of its own", inner=self.inner)
            inner = inner.inner

    @property
    def deploys(self) -> Literal["cloud", "aggregate"]:
        return "aggregate"

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return self.inner.init_server(x, groups) | Struct(fedexp=Struct(factor=1.0))

    def receive(self, s: Struct, up: Struct, groups: tuple[int, ...]) -> Struct:
        up = self.inner.receive(s, up, groups)
        return up | Struct(fedexp=Struct(square=up.delta @ up.delta))

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        eps = self.eps
        if self.form == "code":
            eps *= round.cohort * (round.lr / round.lr0) ** 2
        below = 2 * (float(mean.delta @ mean.delta) + eps)
        factor = max(1.0, float(mean.fedexp.square) / below) if below > 0 else 1.0
        d, changes = self.inner.update(s, mean | Struct(delta=factor * mean.delta), round)
        return d, changes | Struct(xbar=s.x - d / 2, fedexp=Struct(factor=factor))
