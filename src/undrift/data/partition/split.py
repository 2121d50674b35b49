"""Train/test split of data that come without one."""

from __future__ import annotations

from undrift.later import np
from undrift.rng import stream


def training_mask(owners: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """True for training samples: a random `share` (0 to 1) of each owner's.

    Of an owner's n samples, max(1, floor(share n)), but at most n - 1 if n > 1.
    """
    _, numbers, counts = np.unique(owners, return_inverse=True, return_counts=True)
    quotas = np.maximum(1, np.floor(share * counts)).astype(np.int64)
    quotas = np.where(counts > 1, np.minimum(quotas, counts - 1), quotas)
    order = np.lexsort((stream(seed, "test split").random(len(owners)), numbers))
    ranks = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    train = np.empty(len(owners), dtype=bool)
    train[order] = ranks < np.repeat(quotas, counts)
    return train
