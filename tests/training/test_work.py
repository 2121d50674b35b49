"""Local work: which samples make up which mini-batch."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undrift.training.work import Batch, Local

MODES = ["bootstrap", "wrap", "drop", "keep"]
SAMPLES = st.integers(1, 40)
SIZES = st.integers(1, 20)


def plan(
    n: int, mode: str, *, size: int = 8, epochs: float | None = None, steps: int | None = None
) -> list[Batch]:
    local = Local(batch_size=size, batching=mode, epochs=epochs, steps=steps)
    return local.plan(seed=3, t=2, client=1, n=n)


@pytest.mark.parametrize("mode", MODES)
@given(n=SAMPLES, size=SIZES, epochs=st.sampled_from([0.1, 0.5, 1, 1.3, 2, 3]))
def test_batches_hold_positions_of_samples(mode: str, n: int, size: int, epochs: float) -> None:
    batches = plan(n, mode, size=size, epochs=epochs)
    per_epoch = max(n // size, 1) if mode == "drop" else math.ceil(n / size)
    assert len(batches) == max(1, round(epochs * per_epoch))
    for batch in batches:
        assert np.issubdtype(batch.dtype, np.integer)
        assert 0 <= batch.min() <= batch.max() < n
        if mode in ("bootstrap", "wrap"):
            assert len(batch) == size
        elif mode == "drop":
            assert len(batch) == min(size, n)
        else:
            assert len(batch) <= size


@given(n=SAMPLES, size=SIZES)
def test_bootstrap_fills_the_last_batch_of_every_epoch(n: int, size: int) -> None:
    batches = plan(n, "bootstrap", size=size, epochs=3)
    per_epoch = math.ceil(n / size)
    for k in range(3):
        epoch = np.concatenate(batches[k * per_epoch : (k + 1) * per_epoch])
        assert sorted(epoch[:n]) == list(range(n))
        assert len(epoch) == per_epoch * size


def test_bootstrap_draws_the_filling_with_replacement_from_all() -> None:
    local = Local(batch_size=50, batching="bootstrap")
    filling = [local.plan(0, t, 0, n=5)[0][5:] for t in range(200)]
    counts = Counter(np.concatenate(filling).tolist())
    assert counts == {i: pytest.approx(1800, abs=150) for i in range(5)}


@given(n=SAMPLES, size=SIZES)
def test_wrap_reads_on_into_the_next_epoch(n: int, size: int) -> None:
    flow = np.concatenate(plan(n, "wrap", size=size, epochs=4))
    for begin in range(0, len(flow) - n + 1, n):
        assert sorted(flow[begin : begin + n]) == list(range(n))
    rest = flow[len(flow) - len(flow) % n :]
    assert len(set(rest.tolist())) == len(rest)


@given(n=SAMPLES, size=SIZES)
def test_drop_leaves_out_a_smaller_last_batch(n: int, size: int) -> None:
    size = min(size, n)
    batches = plan(n, "drop", size=size, epochs=2)
    assert len(batches) == 2 * (n // size)
    for epoch in (batches[: n // size], batches[n // size :]):
        seen = np.concatenate(epoch)
        assert len(set(seen.tolist())) == len(seen) == n // size * size


@given(n=SAMPLES, size=SIZES)
def test_keep_has_a_smaller_last_batch(n: int, size: int) -> None:
    batches = plan(n, "keep", size=size, epochs=2)
    per_epoch = math.ceil(n / size)
    for k in range(2):
        epoch = batches[k * per_epoch : (k + 1) * per_epoch]
        assert sorted(np.concatenate(epoch)) == list(range(n))
        assert [len(batch) for batch in epoch[:-1]] == [size] * (per_epoch - 1)
        assert len(epoch[-1]) == n - size * (per_epoch - 1)


@pytest.mark.parametrize("mode", MODES)
def test_epochs_are_shuffled_anew(mode: str) -> None:
    one, two = np.split(np.concatenate(plan(16, mode, size=4, epochs=2)), 2)
    assert sorted(one) == sorted(two) == list(range(16))
    assert not np.array_equal(one, two)
    assert not np.array_equal(one, np.arange(16))


@pytest.mark.parametrize(
    ("mode", "sizes"), [("bootstrap", [8]), ("wrap", [8]), ("drop", [3]), ("keep", [3])]
)
def test_fewer_samples_than_a_batch(mode: str, sizes: list[int]) -> None:
    assert [len(batch) for batch in plan(3, mode)] == sizes


@pytest.mark.parametrize("mode", [*MODES, "full"])
@pytest.mark.parametrize("steps", [1, 5, 23])
def test_a_number_of_steps_is_taken_exactly(mode: str, steps: int) -> None:
    assert len(plan(20, mode, steps=steps)) == steps
    assert len(plan(3, mode, steps=steps)) == steps


def test_full_batches_hold_everything() -> None:
    for batch in plan(7, "full", epochs=3):
        assert batch.tolist() == list(range(7))
    assert len(plan(7, "full", epochs=3)) == 3
    assert len(plan(7, "full")) == 1


@pytest.mark.parametrize(
    ("epochs", "count"), [(None, 10), (1, 10), (0.1, 1), (0.25, 2), (0.01, 1), (1.5, 15), (5, 50)]
)
def test_epochs_may_be_fractions(epochs: float | None, count: int) -> None:
    assert len(plan(80, "keep", epochs=epochs)) == count


@pytest.mark.parametrize("mode", MODES)
def test_batches_depend_on_seed_round_and_client_only(mode: str) -> None:
    local = Local(batch_size=8, batching=mode, epochs=1.5)
    other = Local(batch_size=8, batching=mode, epochs=1.5, lr=0.7, weight_decay=0.1, lr_decay=0.5)

    def flow(local: Local, seed: int, t: int, client: int) -> list[int]:
        return np.concatenate(local.plan(seed, t, client, n=21)).tolist()

    first = flow(local, 0, 1, 2)
    flow(local, 5, 5, 5)
    assert flow(local, 0, 1, 2) == flow(other, 0, 1, 2) == first
    for where in ((1, 1, 2), (0, 2, 2), (0, 1, 3), (0, 2, 1)):
        assert flow(local, *where) != first


@pytest.mark.parametrize("mode", MODES)
def test_more_work_begins_with_the_same_batches(mode: str) -> None:
    short, long = plan(21, mode, steps=2), plan(21, mode, steps=9)
    for one, two in zip(short, long, strict=False):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("t", [1, 2, 50])
def test_step_size_decays_by_round(t: int) -> None:
    assert Local(lr=0.3, lr_decay=0.9).lr_at(t) == pytest.approx(0.3 * 0.9 ** (t - 1), rel=1e-12)
    assert Local(lr=0.3).lr_at(t) == 0.3
