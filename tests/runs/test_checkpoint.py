"""A state on disk: the same bits come back, or an error says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from undrift.config import UndriftError
from undrift.core import Struct
from undrift.federation.rounds import State
from undrift.runs import checkpoint
from undrift.system.files import Damaged
from undrift.training.memory import Store


def state(folder: Path | None = None, models: bool = True, t: int = 3) -> State:
    x = torch.arange(4.0) + t
    made = State(
        server=Struct(x=x, xbar=x, part=Struct(v=x.double(), best=float("inf")), events=t),
        buffers=torch.tensor([1.5]),
        t=t,
        clients=Store(folder and folder / "clients", budget=0),
        models=Store(folder and folder / "models") if models else None,
        attention=np.array([0.25, 0.75]),
    )
    for i in (5, 0, 11):
        remember(made, i)
    return made


def remember(state: State, i: int) -> None:
    """What a client leaves behind after a round."""
    state.clients.put(i, Struct(h=torch.full((4,), state.t / (i + 1)), t=state.t))
    if state.models is not None:
        state.models.put(i, Struct(y=torch.full((4,), state.t + i + 0.5)))


def content(state: State) -> dict[str, Any]:
    leaves: dict[str, Any] = {"t": state.t, "buffers": state.buffers, "attention": state.attention}
    leaves |= state.server.leaves("server.")
    for place, store in (("clients", state.clients), ("models", state.models)):
        leaves[place] = None if store is None else list(store)
        for i, record in (store or {}).items():
            leaves |= record.leaves(f"{place}.{i}.")
    return {
        name: (str(leaf.dtype), np.asarray(leaf).tobytes())
        if isinstance(leaf, Tensor | np.ndarray)
        else leaf
        for name, leaf in leaves.items()
    }


def close(state: State) -> None:
    state.clients.close()
    if state.models is not None:
        state.models.close()


def test_without_folders_a_state_is_one_file(tmp_path: Path) -> None:
    made, path = state(), tmp_path / "state.safetensors"
    checkpoint.save(made, path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert content(checkpoint.load(path)) == content(made)


@pytest.mark.parametrize("models", [True, False])
def test_with_folders_rows_stay_where_they_are(models: bool, tmp_path: Path) -> None:
    run = tmp_path / "run"
    made, path = state(run / "stores", models), run / "state.safetensors"
    checkpoint.save(made, path)
    expected = content(made)
    close(made)
    moved = run.rename(tmp_path / "elsewhere")
    loaded = checkpoint.load(moved / path.name, budget=0)
    assert content(loaded) == expected
    assert loaded.clients.folder is not None
    assert loaded.clients.folder.resolve() == moved / "stores" / "clients"
    close(loaded)


@pytest.mark.parametrize("folders", [True, False])
def test_empty_stores_are_not_missing_ones(folders: bool, tmp_path: Path) -> None:
    clients, models = (Store(tmp_path / name if folders else None) for name in ("a", "b"))
    made = State(server=Struct(), buffers=torch.zeros(0), clients=clients, models=models)
    checkpoint.save(made, tmp_path / "state")
    close(made)
    loaded = checkpoint.load(tmp_path / "state")
    assert loaded.models is not None
    assert len(loaded.models) == len(loaded.clients) == 0
    assert loaded.attention is None
    close(loaded)


def test_kept_checkpoints_survive_many_rounds_in_little_space(tmp_path: Path) -> None:
    made = state(tmp_path)
    expected = {}
    for t in range(4, 20):
        made.t = t
        remember(made, 5)
        remember(made, t)
        path = tmp_path / f"{t}.safetensors"
        checkpoint.save(made, path)
        expected = dict([*expected.items()][-1:]) | {path: content(made)}
        checkpoint.keep(made, expected)
    close(made)
    slots = (tmp_path / "clients" / "h.slab").stat().st_size / 16
    assert slots <= len(made.clients) + 4  # those rows, and two versions of what changed
    for path, each in expected.items():
        loaded = checkpoint.load(path)
        assert content(loaded) == each
        close(loaded)


def test_a_file_that_is_written_again_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for t in (1, 2):
        checkpoint.save(state(t=t), path)
        assert checkpoint.load(path).t == t


@given(st.data())
def test_a_changed_bit_is_found(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "changed"
    checkpoint.save(state(), path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    spaces = len(whole[:header]) - len(whole[:header].rstrip())  # which mean nothing
    place = data.draw(
        st.integers(0, len(whole) - 1).filter(lambda i: not 0 <= header - i <= spaces)
    )
    changed = bytearray(whole)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(changed)
    with pytest.raises(Damaged, match="checkpoint"):
        checkpoint.load(path)


@pytest.mark.parametrize("key", [b'"checksum"', b'"undrift"'])
def test_a_changed_key_is_damage_too(key: bytes, tmp_path: Path) -> None:
    path = tmp_path / "changed"
    checkpoint.save(state(), path)
    path.write_bytes(path.read_bytes().replace(key, key[:-2] + b'x"'))
    with pytest.raises(Damaged, match="its checksum is wrong or missing"):
        checkpoint.load(path)


def test_tensors_are_aligned_as_those_that_were_saved(tmp_path: Path) -> None:
    checkpoint.save(state(), tmp_path / "state")
    loaded = checkpoint.load(tmp_path / "state").server
    tensors = [value for _, value in loaded.leaves() if isinstance(value, Tensor)]
    assert len(tensors) == 3
    assert [tensor.data_ptr() % 64 for tensor in tensors] == [0, 0, 0]


@given(share=st.floats(0, 0.999))
def test_a_torn_file_is_found(tmp_path_factory: pytest.TempPathFactory, share: float) -> None:
    path = tmp_path_factory.getbasetemp() / "torn"
    checkpoint.save(state(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UndriftError, match="cannot be read as a checkpoint"):
        checkpoint.load(path)


def test_other_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="cannot be read as a checkpoint"):
        checkpoint.load(tmp_path / "missing")
    with pytest.raises(UndriftError, match="cannot be written"):
        checkpoint.save(state(), tmp_path / "missing" / "state")


def test_a_file_that_cannot_be_opened_now_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more_files(*_: Any, **__: Any) -> None:
        raise RuntimeError("unable to open file: Too many open files")

    checkpoint.save(state(), tmp_path / "state")
    monkeypatch.setattr("undrift.runs.record_file.safe_open", no_more_files)
    with pytest.raises(UndriftError, match="Too many open files") as caught:
        checkpoint.load(tmp_path / "state")
    assert not isinstance(caught.value, Damaged)


def test_a_state_does_not_lead_out_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    made, path = state(tmp_path / "elsewhere", models=False), tmp_path / "run" / "state"
    with pytest.raises(UndriftError, match="elsewhere/clients', outside of"):
        checkpoint.save(made, path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_beside", lambda path, folder: Path(folder))
        checkpoint.save(made, path)
    close(made)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UndriftError, match=r"\.\./elsewhere/clients', outside of"):
        checkpoint.load(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_state_whose_folder_is_in_use_is_refused(tmp_path: Path) -> None:
    made = state(tmp_path)
    checkpoint.save(made, tmp_path / "state")
    with pytest.raises(UndriftError, match="clients is in use by process"):
        checkpoint.load(tmp_path / "state")
    close(made)
