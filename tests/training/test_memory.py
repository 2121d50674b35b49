"""The clients' memory: a mapping whatever is spilled, saved, corrupted or cut short."""

from __future__ import annotations

import copy
import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from undrift.config import UndriftError
from undrift.core import Struct
from undrift.system.lock import Lock, holder
from undrift.training.memory import OVERHEAD, Index, Store

N = 5
ROW = 4 * N + 8 + 2 * OVERHEAD
"""bytes that a record below takes in memory"""


def record(seed: int) -> Struct:
    rng = np.random.default_rng(seed)
    vector = torch.from_numpy(rng.integers(0, 2**32, N, dtype=np.uint32)).view(torch.float32)
    inner = Struct(norm=torch.tensor(rng.normal(), dtype=torch.float64), rate=float(rng.normal()))
    return Struct(h=vector, t=seed, part=inner, none=Struct())


def bits(record: Struct) -> dict[str, Any]:
    """All that a record holds, in a form that can be compared."""
    return {
        name: (leaf.dtype, leaf.shape, leaf.numpy().tobytes())
        if isinstance(leaf, Tensor)
        else (type(leaf), repr(leaf))
        for name, leaf in record.leaves()
    }


def same(store: Mapping[int, Struct], seeds: Mapping[int, int]) -> None:
    assert list(store) == sorted(seeds)
    for i, seed in seeds.items():
        assert bits(store[i]) == bits(record(seed))
        assert "none" in store[i]


def fill(store: Store, seeds: Mapping[int, int]) -> None:
    for i, seed in seeds.items():
        store.put(i, record(seed))


class Life(RuleBasedStateMachine):
    """A store against a dict of seeds, through checkpoints, crashes and cleaning."""

    @initialize(rows=st.integers(0, 3))
    def begin(self, rows: int) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.folder, self.budget = Path(self.place.name) / "store", rows * ROW
        self.store = Store(self.folder, self.budget)
        self.seeds: dict[int, int] = {}
        self.kept: list[tuple[Index, dict[int, int]]] = []

    @rule(client=st.integers(0, 6), seed=st.integers(0, 10**6))
    def put(self, client: int, seed: int) -> None:
        self.store.put(client, record(seed))
        self.seeds[client] = seed

    @rule(news=st.dictionaries(st.integers(0, 6), st.integers(0, 10**6)), commit=st.booleans())
    def draft(self, news: dict[int, int], commit: bool) -> None:
        draft = self.store.draft()
        for client, seed in news.items():
            draft.put(client, record(seed))
            assert len(draft._records) * ROW <= self.budget
            assert len(self.store) == len(self.seeds)  # nothing counts yet
        if commit:
            draft.commit()
            self.seeds |= news

    @rule(client=st.integers(0, 6))
    def get(self, client: int) -> None:
        assert (client in self.store) == (client in self.seeds)
        found = self.store.get(client)
        if found is not None:
            assert bits(found) == bits(record(self.seeds[client]))

    @rule()
    def flush(self) -> None:
        self.kept.append((self.store.flush(), dict(self.seeds)))

    @rule(count=st.integers(0, 2))
    def keep(self, count: int) -> None:
        self.kept = self.kept[len(self.kept) - min(count, len(self.kept)) :]
        self.store.keep(index for index, _ in self.kept)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.store.close()
        scribble(self.folder, [index for index, _ in self.kept])
        index, seeds = data.draw(st.sampled_from(self.kept))
        self.store, self.seeds = Store.restore(self.folder, index, self.budget), dict(seeds)

    @invariant()
    def bounded(self) -> None:
        assert len(self.store._cache) * ROW <= self.budget
        assert len(self.store) == len(self.seeds)

    def teardown(self) -> None:
        same(self.store, self.seeds)
        for index, seeds in self.kept:
            self.store.close()
            self.store = Store.restore(self.folder, index, self.budget)
            same(self.store, seeds)
        self.store.close()
        self.place.cleanup()


def scribble(folder: Path, indices: list[Index]) -> None:
    """Spoil every byte of the slabs that no index refers to."""
    used = {slot for index in indices for slot in index["slots"].tolist()}
    for name, nbytes in (("h", 4 * N), ("part.norm", 8)):
        path = folder / f"{name}.slab"
        if path.exists():
            data = path.read_bytes()
            rows = [data[i : i + nbytes] for i in range(0, len(data), nbytes)]
            spoilt = [row if i in used else b"\xff" * len(row) for i, row in enumerate(rows)]
            path.write_bytes(b"".join(spoilt))


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=40)


class Crash(BaseException):
    """The end of the process, as far as the store can see."""


@given(st.data())
def test_a_crash_at_any_byte_leaves_the_checkpoints_whole(data: st.DataObject) -> None:
    patch = pytest.MonkeyPatch()
    moment, share = data.draw(st.integers(0, 60)), data.draw(st.floats(0, 1))
    with tempfile.TemporaryDirectory() as place, patch.context() as patched:
        folder = Path(place)
        kept: list[tuple[Index, dict[int, int]]] = []
        store = Store(folder, ROW)
        patched.setattr(os, "pwrite", failing(moment, share, Crash()))
        try:
            seeds: dict[int, int] = {}
            for t in range(5):
                seeds |= {(t * 3 + k) % 7: 100 * t + k for k in range(4)}
                fill(store, seeds)
                kept = [*kept[-1:], (store.flush(), dict(seeds))]
                store.keep(index for index, _ in kept)
        except Crash:
            pass
        store.close()
        for index, seeds in kept:
            with Store.restore(folder, index) as restored:
                same(restored, seeds)


def failing(moment: int, share: float, error: BaseException) -> Callable[..., int]:
    """A `pwrite` that fails for good at some call, after a share of its bytes."""
    write, calls = os.pwrite, iter(range(10**6))

    def pwrite(file: int, data: Any, offset: int) -> int:
        call = next(calls)
        if call < moment:
            return write(file, data, offset)
        if call == moment:
            write(file, data[: int(share * len(data))], offset)
        raise error

    return pwrite


def test_small_stores_never_touch_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: pytest.fail("a file was made"))
    store = Store(budget=3 * ROW)
    fill(store, {2: 1, 0: 2, 1: 3})
    same(store, {0: 2, 1: 3, 2: 1})


def test_without_a_folder_rows_spill_to_files_that_nobody_sees(tmp_path: Path) -> None:
    store = Store(budget=ROW)
    seeds = {i: i + 7 for i in range(50)}
    fill(store, dict.fromkeys(seeds, 1))
    fill(store, seeds)
    same(store, seeds)
    with pytest.raises(UndriftError, match="without a folder"):
        store.flush()


def test_a_superseded_row_leaves_its_slot_to_others(tmp_path: Path) -> None:
    with Store(tmp_path, budget=0) as store:
        for t in range(10):
            fill(store, {i: 10 * t + i for i in range(4)})
        assert (tmp_path / "h.slab").stat().st_size == 4 * 4 * N
        for t in range(10):
            fill(store, {i: 10 * t + i for i in range(4)})
            store.keep([store.flush()])
        assert (tmp_path / "h.slab").stat().st_size == 2 * 4 * 4 * N


@pytest.mark.parametrize("form", [Struct(), Struct(t=1), Struct(a=Struct())], ids=str)
def test_a_record_without_tensors_costs_no_file(form: Struct, tmp_path: Path) -> None:
    with Store(tmp_path / "a") as store:
        for i in (3, 1, 2):
            store.put(i, form)
        assert not store._cache
        index = store.flush()
        store.put(9, form)
    assert not list((tmp_path / "a").glob("*.slab"))
    with Store.restore(tmp_path / "a", index) as store:
        assert list(store) == [1, 2, 3]
        assert bits(store[2]) == bits(form)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(3, dtype=torch.int64),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.empty(0),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0)[3:5],
        torch.ones(1).expand(4),
        torch.ones(3, requires_grad=True),
        -(2**63),
        float("nan"),
        float("-inf"),
        -0.0,
    ],
    ids=repr,
)
def test_any_tensor_and_number_comes_back_as_it_was(value: Any) -> None:
    store = Store(budget=0)
    store.put(4, Struct(v=value))
    back = store[4].v
    if isinstance(value, Tensor):
        assert (back.dtype, back.shape, back.requires_grad) == (value.dtype, value.shape, False)
        assert torch.equal(back, value.detach())
    else:
        assert (type(back), repr(back)) == (type(value), repr(value))


def test_a_view_does_not_hold_the_memory_behind_it() -> None:
    store = Store()
    store.put(0, Struct(h=torch.zeros(1000)[:10]))
    assert store[0].h.untyped_storage().nbytes() == 40


@pytest.mark.parametrize("value", ["a", None, True, 2**63, np.float64(1)], ids=repr)
def test_what_cannot_be_stored_is_refused(value: Any) -> None:
    with pytest.raises(UndriftError, match=r"client 4: part\.v=.* cannot be stored"):
        Store().put(4, Struct(part=Struct(v=value)))


@pytest.mark.parametrize(
    "other",
    [Struct(h=torch.zeros(4), t=1), Struct(h=torch.zeros(3).double(), t=1), Struct(t=1), Struct()],
    ids=["length", "dtype", "fields", "empty"],
)
def test_another_form_is_refused(other: Struct) -> None:
    store = Store()
    store.put(1, Struct(h=torch.zeros(3), t=0))
    with pytest.raises(UndriftError, match=r'client 2: .* all others are {"h": \["float32", 3\]'):
        store.put(2, other)
    assert list(store) == [1]


def test_unknown_clients_are_unknown() -> None:
    store = Store()
    assert store.get(3) is None
    assert 3 not in store
    with pytest.raises(KeyError):
        store[3]


def test_an_empty_store_can_be_saved(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        index = store.flush()
    with Store.restore(tmp_path, index) as store:
        assert not store
        store.put(1, record(1))
        same(store, {1: 1})


def test_what_lies_in_a_folder_is_not_overwritten_by_a_new_store(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, {1: 1, 2: 2})
        index = store.flush()
    with Store(tmp_path, budget=0) as store:
        fill(store, {5: 5, 6: 6})
        same(store, {5: 5, 6: 6})
    with Store.restore(tmp_path, index) as store:
        same(store, {1: 1, 2: 2})


def test_a_copy_lives_on_its_own(tmp_path: Path) -> None:
    with Store(tmp_path, budget=ROW) as store:
        fill(store, {1: 1, 2: 2})
        other = copy.deepcopy(store)
        store.put(1, record(3))
    same(other, {1: 1, 2: 2})


@given(byte=st.integers(0, 4 * N - 1), bit=st.integers(0, 7))
def test_a_changed_bit_is_found(byte: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Store(folder) as store:
            fill(store, {3: 1, 4: 2})
            index = store.flush()
        path = Path(folder) / "h.slab"
        data = bytearray(path.read_bytes())
        data[byte] ^= 1 << bit
        path.write_bytes(data)
        with Store.restore(folder, index) as store:
            assert bits(store[4]) == bits(record(2))
            with pytest.raises(UndriftError, match=r"h\.slab: the record of client 3 .* checksum"):
                store[3]


@pytest.mark.parametrize("left", [None, 0, 4 * N, 8 * N - 1])
def test_a_missing_or_short_file_is_refused_at_once(left: int | None, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill(store, {3: 1, 4: 2})
        index = store.flush()
    path = tmp_path / "h.slab"
    data = path.read_bytes()[:left]
    path.unlink()
    if left is not None:
        path.write_bytes(data)
    for _ in range(2):  # and the folder is not held by the failed attempt
        with pytest.raises(UndriftError, match=r"h\.slab: the record of client 4 .* file ends"):
            Store.restore(tmp_path, index)


@pytest.mark.parametrize("moment", range(10))
def test_a_full_disk_loses_nothing(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, budget=2 * ROW)
    before = {i: i for i in range(5)}
    seeds = dict(before)
    fill(store, seeds)
    index = store.flush()

    def change() -> Index:
        for i in range(5):
            seeds[i] = i + 10
            store.put(i, record(i + 10))
        return store.flush()

    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", failing(moment, 0.5, full))
        with pytest.raises(UndriftError, match=r"slab cannot be written \(No space left"):
            change()
    same(store, seeds)
    after = change()
    store.close()
    for each, expected in ((index, before), (after, seeds)):
        with Store.restore(tmp_path, each) as restored:
            same(restored, expected)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UndriftError, match=r"file/store cannot be written"):
        Store(tmp_path / "file" / "store")


def test_a_closed_store_leaves_the_folder_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, budget=0)
    fill(store, {1: 1})
    store.close()
    store.close()
    with pytest.raises(UndriftError, match="Bad file descriptor"):
        store.put(2, record(2))
    with pytest.raises(UndriftError, match="Bad file descriptor"):
        store[1]


HOLD = """
import sys
from undrift.system.lock import Lock
lock = Lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_held_by_a_living_process_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UndriftError, match=f"in use by process {other.pid};"):
            Store(tmp_path)
        other.kill()
        other.wait()
        Store(tmp_path).close()


def test_a_number_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / ".pid").write_text(str(os.getpid()))
    assert holder(tmp_path) is None
    lock = Lock(tmp_path)
    (tmp_path / ".pid").write_text("4194305")  # more than any here: that of another container
    assert holder(tmp_path) == 4194305
    lock.close()
    (tmp_path / ".pid").write_text(str(os.getpid()))
    assert holder(tmp_path) is None


def test_who_only_looks_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr("undrift.system.lock.PATIENCE", 60.0)
    Lock(tmp_path).close()
    with (tmp_path / ".lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        (tmp_path / ".pid").write_text("7")
        assert holder(tmp_path) is None
        threading.Timer(0.02, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        Lock(tmp_path).close()


def test_names_in_an_index_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    with Store(tmp_path / "a") as store:
        store.put(1, Struct(h=torch.ones(2)))
        index = store.flush()
    form = bytes(index["form"].tolist()).replace(b"h", b"../h")
    index["form"] = torch.tensor(list(form), dtype=torch.uint8)
    with pytest.raises(UndriftError, match=r"'\.\./h' is not a valid field name; resume"):
        Store.restore(tmp_path / "a", index)
    assert not (tmp_path / "h.slab").exists()


def test_a_folder_is_held_by_one_store_of_this_process_too(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(UndriftError, match=f"in use by process {os.getpid()};"):
        Lock(tmp_path)
    lock.close()
    Lock(tmp_path).close()


def test_threads_may_read_while_one_writes() -> None:
    """Each record holds one number throughout, so a mixture of two versions would show."""
    store = Store(budget=0)
    done, wrong = threading.Event(), []

    def vector(value: int) -> Struct:
        return Struct(h=torch.full((3000,), float(value)), t=value)

    def read() -> None:
        try:
            while not done.is_set():
                for i in range(4):
                    me = store[i]
                    if not (me.h == me.t).all():
                        wrong.append(i)
        except Exception as error:
            wrong.append(error)

    for i in range(4):
        store.put(i, vector(0))
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for value in range(150):
        for i in range(4):
            store.put(i, vector(value))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
