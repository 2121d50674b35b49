"""Test samples: of data that come without any, of each client, and a part of too many."""

from __future__ import annotations

from dataclasses import replace

from undrift.data.federated import FederatedData
from undrift.later import np
from undrift.rng import stream


def training_mask(
    owners: np.ndarray, share: float, seed: int = 0, purpose: str = "test split"
) -> np.ndarray:
    """True for training samples: a random `share` (0 to 1) of each owner's.

    Of an owner's n samples, max(1, floor(share n)), but at most n - 1 if n > 1.
    """
    _, numbers, counts = np.unique(owners, return_inverse=True, return_counts=True)
    quotas = np.maximum(1, np.floor(share * counts)).astype(np.int64)
    quotas = np.where(counts > 1, np.minimum(quotas, counts - 1), quotas)
    order = np.lexsort((stream(seed, purpose).random(len(owners)), numbers))
    ranks = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    train = np.empty(len(owners), dtype=bool)
    train[order] = ranks < np.repeat(quotas, counts)
    return train


def with_own_tests(data: FederatedData, share: float, seed: int) -> FederatedData:
    """The same data, where each client tests on a random `share` of its samples.

    It trains on the others: on at least one, and if it has two, it tests on at least one.
    """
    owners = np.repeat(np.arange(len(data)), data.sizes)
    train = training_mask(owners, 1 - share, seed, "clients' tests")
    tests = np.bincount(owners[~train], minlength=len(data))
    return replace(
        data,
        order=data.order[train],
        offsets=data.offsets - np.cumsum([0, *tests]),
        own_tests=tuple(np.split(data.order[~train], np.cumsum(tests)[:-1])),
    )


def with_fewer_tests(data: FederatedData, count: int) -> FederatedData:
    """The same data with at most `count` of its common test samples, always the same ones.

    Every class keeps its share of them, where samples have classes.
    """
    total = len(data.test_targets)
    if total <= count:
        return data
    keys = [stream(0, "test subset").random(total)]
    if data.test_targets.ndim == 1 and not data.test_targets.is_floating_point():
        keys.append(data.test_targets.cpu().numpy())
    by_class = np.lexsort(keys)
    rows = np.sort(by_class[np.arange(count) * total // count])
    return replace(data, test_inputs=data.test_inputs[rows], test_targets=data.test_targets[rows])


def without_tests(data: FederatedData) -> FederatedData:
    """The same data without its common test samples; results on them are NaN."""
    return replace(data, test_inputs=data.test_inputs[:0], test_targets=data.test_targets[:0])
