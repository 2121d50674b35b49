"""IDA: updates weighted by how near they are to their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.core import Part, Struct, Vector


@dataclass(frozen=True)
class IDA(Part):
    """Inverse distance aggregation: w_k ∝ 1/max(||θ_k − mean θ||, 1e-12), whatever w was before.

    The mean is the arithmetic mean of the round's models; equal distances give equal weights.

    Cost: none to clients; the server holds all updates of a round.
    Deviations: none known; the original paper's text could not be consulted. Around FedNova,
    distances are those of the updates per unit of work.
    Reference: Yeganeh et al., Inverse distance aggregation for federated learning with non-IID
    data, 2020, https://arxiv.org/abs/2008.07665.

    >>> undrift.algorithm("FedGLAD(IDA(FedAvg()))")
    FedGLAD(IDA(FedAvg()))
    """

    rank = 1
    holistic = True

    def reweigh(self, s: Struct, ups: Sequence[Struct], w: Vector) -> Vector:
        middle = sum(up.delta for up in ups) / len(ups)
        nearness = [1 / (up.delta - middle).norm().clamp(min=1e-12) for up in ups]
        total = sum(nearness)
        return [near / total for near in nearness]
