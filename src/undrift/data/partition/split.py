"""Test samples out of data that have no test part of their own."""

from __future__ import annotations

import numpy as np

from undrift.rng import stream


def for_training(owners: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """Which samples are to train on: of each owner's, a random share.

    Of an owner's n samples that is max(1, floor(share n)) and, if n > 1, never all of them.
    """
    _, numbers, counts = np.unique(owners, return_inverse=True, return_counts=True)
    quotas = np.maximum(1, np.floor(share * counts)).astype(np.int64)
    quotas = np.where(counts > 1, np.minimum(quotas, counts - 1), quotas)
    order = np.lexsort((stream(seed, "test split").random(len(owners)), numbers))
    ranks = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    train = np.empty(len(owners), dtype=bool)
    train[order] = ranks < np.repeat(quotas, counts)
    return train
