"""Centralised: the baseline that a federation cannot have, all samples in one place."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.core import Algorithm


@dataclass(frozen=True)
class Centralised(Algorithm):
    """SGD on the samples of all clients, pooled: what the federation is measured against.

    In a round it takes as many steps as the cohort's clients would take together, on batches of the
    same size drawn from all samples, with the same step size and weight decay. So it visits as many
    samples as they do, unless clients hold less than a batch and `batching` leaves batches small;
    with `batching="full"`, every step uses all samples.

    Cost: nothing kept; nothing sent.
    Deviations: none; with one client it is FedAvg, bit for bit.
    Reference: McMahan et al., Communication-efficient learning of deep networks from decentralized
    data, AISTATS 2017, https://arxiv.org/abs/1602.05629.

    >>> undrift.algorithm("centralised")
    Centralised()
    """

    regime = "central"
