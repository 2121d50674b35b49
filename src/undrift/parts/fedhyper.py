"""FedHyper: the server's step size learns from whether updates keep their direction."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Part, RoundFacts, Struct, Vector, flag, real
from undrift.vectors import cosine


@dataclass(frozen=True)
class FedHyper(Part):
    """Rescales the mean update by a rate that grows while successive updates agree (FedHyper-G).

    αᵗ = clip(αᵗ⁻¹ + ⟨ḡᵗ, ḡᵗ⁻¹⟩, 1/bound, bound)    ĝ = α ḡ, what the inner algorithm gets

    α starts at 1. The inner product has the unit of ||x||²; `normalise` takes the cosine instead.

    Neutral: bound=1.
    Cost: n and one number kept by the server; no traffic.
    Deviations: the paper's schedulers of the local step size are not offered; `bound` is 3 in the
    paper and 5 in its code; `normalise` is ours.
    Reference: Wang et al., FedHyper: A universal and robust learning rate scheduler for federated
    learning with hypergradient descent, ICLR 2024, https://arxiv.org/abs/2310.03156.

    >>> undrift.algorithm("FedHyper(FedAvg(), normalise=True)")
    FedHyper(FedAvg(), normalise=True)
    """

    _: KW_ONLY
    bound: float = real(3.0, ge=1, tune="log(1.1, 10)")
    normalise: bool = flag(False)

    rank = 3

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        own = Struct(g=0 * x, rate=1.0)
        return self.inner.init_server(x, groups) | Struct(fedhyper=own)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        g, last = mean.delta, s.fedhyper.g
        agreement = cosine(g, last) if self.normalise else float(g @ last)
        rate = min(max(s.fedhyper.rate + agreement, 1 / self.bound), self.bound)
        d, changes = self.inner.update(s, mean | Struct(delta=rate * g), round)
        return d, changes | Struct(fedhyper=Struct(g=g, rate=rate))
