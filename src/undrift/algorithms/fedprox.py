"""FedProx: FedAvg with a pull back to the cloud model."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Algorithm, Client, Grad, Struct, Vector, Weights, choice, real


@dataclass(frozen=True)
class FedProx(Algorithm):
    """Clients minimise L_i(y) + mu/2 ||y - x||^2 instead of L_i.

    mu  strength of the pull towards the cloud model x

    Neutral: mu=0.
    Cost: nothing kept; n down, n up.
    Deviations: none.
    Reference: Li et al., Federated optimization in heterogeneous networks, MLSys 2020,
    https://arxiv.org/abs/1812.06127.

    >>> undrift.algorithm("FedProx(mu=0.1)")
    FedProx(mu=0.1)
    """

    mu: float = real(0.01, ge=0, tune="log(0.001, 1)")
    _: KW_ONLY
    weights: Weights = choice("samples", "uniform")

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        return grad(local.y) + self.mu * (local.y - down.x)
