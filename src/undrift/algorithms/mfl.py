"""MFL: the clients' optimisers are averaged like their models."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.algorithms.shared_statistics import SharedStatistics
from undrift.core import Client, RoundFacts, Struct, Vector


@dataclass(frozen=True)
class MFL(SharedStatistics):
    """Clients take ordinary optimiser steps from the server's model and statistics; both go back.

    Neutral: SGDm(beta=0).
    Cost: |s| kept by the server; n + |s| down, n + |s| up.
    Deviations: none; the paper has momentum SGD, RMSProp and Adam follow FedGBO's comparison, in
    which v starts at 1.
    Reference: Liu et al., Accelerating federated learning via momentum gradient descent, IEEE TPDS
    2020, https://arxiv.org/abs/1910.03197.

    >>> undrift.algorithm("MFL(SGDm(beta=0.5))")
    MFL(SGDm(beta=0.5))
    """

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        return Struct(y=down.x, stats=down.stats)

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        step, stats = self.optimiser.step(local.stats, d)
        rate = client.lr * self.optimiser.lr
        return local | Struct(y=local.y - rate * step, stats=stats)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        return Struct(delta=down.x - local.y, stats=local.stats), me

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        return d, changes | Struct(stats=mean.stats)
