"""FedGLAD: the server's step adapted to the similarity of the updates."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import RoundFacts, Struct, Vector, choice, real
from undrift.parts.similarity import Similarity
from undrift.vectors import group_square_norms, spread


@dataclass(frozen=True)
class FedGLAD(Similarity):
    """Rescales the mean update, group by group, before the server's rule sees it.

    GSI = sqrt(Σ w_k ||g_k||² / ||Σ w_k g_k||²)   1 if all updates agree, more if they differ
    B ← βB + (1−β) GSI                            its running mean; the first GSI starts it
    ζ = clip(GSI/B, 1 − γs, 1 + γs), s = t − 1    bounds that open as training goes on
    ĝ = ζ ḡ                                       what the inner algorithm gets as mean.delta

    `groups="universal"` treats all parameters as one group. Squared-gradient accumulators and
    whatever recovers gradients from models (SCAFFOLD/m, FedGBO) go on using mean.raw = ḡ.

    Neutral: gamma=0.
    Cost: two numbers a group kept by the server; no traffic.
    Deviations: where all updates are 0, ζ = 1; where only their mean is, ζ is the upper bound; in
    both cases B stays.
    Reference: Yang et al., When to trust aggregated gradients: Addressing negative client sampling
    in federated learning, TMLR 2023, https://arxiv.org/abs/2301.10400.

    >>> undrift.algorithm("FedGLAD(AdaBest(), gamma=0.05)")
    FedGLAD(AdaBest(mu=0.02, beta=0.96), gamma=0.05)
    """

    _: KW_ONLY
    gamma: float = real(0.02, ge=0, infinite=True, tune="log(0.005, 0.1)")
    beta: float = real(0.9, ge=0, lt=1)
    groups: str = choice("parameter", "universal")

    def split(self, groups: tuple[int, ...]) -> tuple[int, ...]:
        return groups if self.groups == "parameter" else (sum(groups),)

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        start = group_square_norms(0 * x, self.split(groups))  # zeros: B is not defined yet
        own = Struct(B=start, gsi=start + 1, factor=start + 1)
        return self.inner.init_server(x, groups) | Struct(fedglad=own)

    def receive(self, s: Struct, up: Struct, groups: tuple[int, ...]) -> Struct:
        up = self.inner.receive(s, up, groups)
        square = group_square_norms(up.delta, self.split(groups))
        return up | Struct(fedglad=Struct(square=square))

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        groups = self.split(round.groups)
        square = mean.fedglad.square
        gsi = (square / group_square_norms(mean.delta, groups)).sqrt()
        B = s.fedglad.B
        B = B.where(B > 0, gsi.where(gsi.isfinite(), 0 * B))
        room = self.gamma * (round.t - 1) if round.t > 1 else 0.0
        factor = (gsi / B).clamp(1 - room, 1 + room).where(square > 0, 1 + 0 * B)
        own = Struct(
            B=(self.beta * B + (1 - self.beta) * gsi).where(gsi.isfinite(), B),
            gsi=gsi,
            factor=factor,
        )
        g = mean.delta
        g = g.where(g == 0, spread(factor, groups) * g)  # ζ may be infinite where ḡ is 0
        d, changes = self.inner.update(s, mean | Struct(delta=g), round)
        return d, changes | Struct(fedglad=own)
