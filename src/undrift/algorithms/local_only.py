"""LocalOnly: the baseline without a federation, every client alone."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.core import Algorithm, Client, RoundFacts, Struct, Vector


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Every client trains a model of its own from the common initial one; none is ever averaged.

    A client trains in the rounds in which it is drawn, as in a federation; draw all clients in
    every round to train them all the time. Accuracy and loss are means over the clients' models.
    The server's model stays the initial one; clients' models are in their memory (y).

    Cost: n kept by each client; nothing sent.
    Deviations: none.
    Reference: Li et al., Ditto: Fair and robust federated learning through personalization,
    ICML 2021, https://arxiv.org/abs/2012.04221.

    >>> undrift.algorithm("LocalOnly()")
    LocalOnly()
    """

    regime = "local"

    def init_client(self, x: Vector) -> Struct:
        return Struct(y=x)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        return Struct(y=me.y)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        return Struct(delta=down.x - local.y), Struct(y=local.y)  # measured, but neither sent

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        return 0 * s.x, Struct(xbar=s.x - mean.delta)  # nor learned from
