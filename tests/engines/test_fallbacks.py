"""What cannot be recorded or compiled runs in Python, and says why."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.engines.kinds import (
    federation,
    gap,
    last,
)
from undrift.config import UndriftError
from undrift.core import Algorithm, Client, Grad, Struct
from undrift.engines import Auto, Compiled, Sequential
from undrift.engines.native import library
from undrift.engines.native.trainer import CompiledTrainer
from undrift.training.task import Task
from undrift.training.work import Local


class Looks(nn.Linear):
    """Branches on a value."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2.0 if x.sum() > 0 else 1.0)


class Masks(nn.Linear):
    """Computes with as many values as are positive."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x[x > 0].mean()


class Counts(nn.Linear):
    """Changes with every call, unseen by torch."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (1 + self.calls % 2)


class Hoards(nn.Linear):
    """Changes a tensor that is neither buffer nor parameter."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.seen = torch.zeros((), dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Looks, "looks at values"),
        (Masks, "as many values as are true"),
        (Counts, "another result than PyTorch"),
        (Hoards, "neither buffer nor parameter"),
    ],
)
def test_a_model_that_cannot_be_recorded_runs_in_python(
    model: type[nn.Linear], reason: str
) -> None:
    torch.manual_seed(0)
    _, data = federation("linear")
    task = Task(model(6, 4).double())
    engine = Compiled(2)
    prepared = engine.prepare(task, data, Local(batch_size=4))
    assert reason in prepared.about
    assert prepared.rounding == "python"
    if model is not Counts:
        assert gap(last(task, data, engine), last(task, data, Sequential())) == 0


class Sorts(Algorithm):
    """An algorithm whose direction is no arithmetic on vectors."""

    def direction(self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client) -> Any:
        return torch.sort(grad(local.y)).values


def test_a_rule_that_cannot_be_recorded_runs_in_python(caplog: pytest.LogCaptureFixture) -> None:
    task, data = federation("mlp, dropout")
    ends = [last(task, data, kind, Sorts()) for kind in (Sequential(), Compiled(1), Compiled(3))]
    assert gap(ends[1], ends[2]) == 0
    assert gap(ends[0], ends[1]) <= 1e-12
    assert "Sorts() trains in Python: a local step with torch.sort" in caplog.text


class Branches(Algorithm):
    """An algorithm that looks at values."""

    def direction(self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client) -> Any:
        d = grad(local.y)
        return d if d.norm() < 1 else d / d.norm()


def test_a_rule_that_looks_at_values_says_so(caplog: pytest.LogCaptureFixture) -> None:
    last(*federation("linear"), Compiled(1), Branches())
    assert "Branches() trains in Python: a local step that looks at values" in caplog.text


@pytest.mark.parametrize(
    "loss", ["mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"]
)
def test_losses_with_one_number_for_many_are_compiled_without_a_warning(loss: str) -> None:
    task, data = federation("linear")

    def of(outputs: Tensor, targets: Tensor) -> Tensor:
        wanted = (targets[:, None] == torch.arange(4)).to(outputs.dtype)
        found: Tensor = getattr(nn.functional, loss)(outputs.sigmoid(), wanted)
        return found

    task, engine = Task(task.model, of), Compiled(1)
    prepared = engine.prepare(task, data, Local(batch_size=4))
    assert prepared.rounding == "compiled", prepared.about
    assert gap(last(task, data, engine), last(task, data, Sequential())) <= 1e-12


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, in which the library is looked for anew."""
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path))
    library.problem.cache_clear()
    yield tmp_path
    library.problem.cache_clear()


def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("CXX", raising=False)
    task, data = federation("linear")
    engine = Auto(2)
    prepared = engine.prepare(task, data, Local())
    assert "in Python: there is no C++ compiler; install one" in prepared.about
    assert gap(last(task, data, engine), last(task, data, Sequential())) == 0


def test_a_compiler_that_fails(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(UndriftError, match="could not be compiled"):
        library.load()
    assert not list(cache.rglob("*.so"))


def test_a_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("UNDRIFT_CACHE", str(cache / "file"))
    assert "set UNDRIFT_CACHE" in str(library.problem())


def test_a_user_without_a_home(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDRIFT_CACHE")

    def homeless(name: str) -> str:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("platformdirs.user_cache_dir", homeless)
    assert "set UNDRIFT_CACHE" in str(library.problem())


def planted(cache: Path) -> Path:
    """A library of somebody else where ours would be, with the right checksum."""
    file = cache / "native" / f"undrift-{library.fingerprint()}.so"
    file.parent.mkdir(mode=0o700)
    file.write_bytes(b"harm")
    file.with_suffix(".sha256").write_text(hashlib.sha256(b"harm").hexdigest())
    return file


@pytest.mark.skipif(os.name == "nt", reason="rights of files are others on Windows")
@pytest.mark.parametrize("what", ["folder", "library"])
def test_a_library_that_others_could_have_planted_is_not_loaded(
    what: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = planted(cache)
    (file if what == "library" else file.parent).chmod(0o777)
    monkeypatch.setattr(torch.ops, "load_library", lambda path: pytest.fail("it was loaded"))
    assert "others may write to it" in str(library.problem())


def test_a_library_that_was_cut_is_built_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(cache).write_bytes(b"ha")
    built: list[Path] = []
    monkeypatch.setattr(library, "_compile", built.append)
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    assert library.problem() is None
    assert [path.suffix for path in built] == [".so"]


def test_a_client_without_a_finite_loss_changes_nothing_for_others() -> None:
    """Whichever batch a worker meets first, its steps are recorded all the same."""
    task, data = federation("linear")
    for bad in (math.nan, math.inf):
        data.inputs[data.rows(0)] = bad
        ends = [last(task, data, Compiled(workers)) for workers in (1, 5)]
        assert gap(*ends) == 0
        trainer = CompiledTrainer(task.replica())
        assert trainer._program(*data.client(0), torch.arange(2)[None]) is not None
