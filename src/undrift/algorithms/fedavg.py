"""FedAvg: the mean of the clients' models."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Algorithm, Weights, choice


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Clients take SGD steps from the cloud model; the server takes the mean of what they reach.

    theta^t = theta^{t-1} - sum_i w_i g_i,  g_i = theta^{t-1} - theta_i^t

    Cost: nothing kept; n down, n up.
    Deviations: none. `weights="samples"` is n_i / sum n_j, "uniform" 1 / |P^t|.
    Reference: McMahan et al., Communication-efficient learning of deep networks from decentralized
    data, AISTATS 2017, https://arxiv.org/abs/1602.05629.

    >>> undrift.algorithm("fedavg")
    FedAvg()
    """

    _: KW_ONLY
    weights: Weights = choice("samples", "uniform")
