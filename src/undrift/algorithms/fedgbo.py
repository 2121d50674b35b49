"""FedGBO: a biased global optimiser, learned from the models alone."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.algorithms.shared_statistics import StillStatistics
from undrift.core import RoundFacts, Struct, Vector


@dataclass(frozen=True)
class FedGBO(StillStatistics):
    """Clients step with statistics held still, so the server can recover their mean gradient.

    s = (m, v)  the optimiser's statistics    U, T, I   use, track, invert (see `undrift.optim`)
    g̃ = I(ḡ/(ηK))  exactly the weighted mean of all mini-batch gradients on all local paths

    `optimiser` is SGDm(beta), RMSProp(beta) or Adam(beta1, beta2); v starts at 1.

    Neutral: SGDm(beta=0).
    Cost: |s| kept by the server; n + |s| down, n up.
    Deviations: v tracks g̃², where the paper's Table 1 prints g̃.
    Reference: Mills et al., Accelerating federated learning with a global biased optimiser,
    IEEE TC 2022, https://doi.org/10.1109/TC.2022.3212631.

    >>> undrift.algorithm("FedGBO(RMSProp())")
    FedGBO(RMSProp())
    """

    even_steps = True

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        rate = round.lr * self.optimiser.lr * round.steps
        g = self.optimiser.invert(s.stats, mean.raw / rate)  # g̃ = I(xᵗ, xᵗ⁺¹)
        return d, changes | Struct(stats=self.optimiser.track(s.stats, g))  # s ← T(g̃)
