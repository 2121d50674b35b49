"""Runs survive: what was interrupted and gone on with ends with the bits of a quiet run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from undrift.core import Struct
from undrift.runs import checkpoint

KILLS = 15


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, str(script), str(folder), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def rows(folder: Path) -> list[dict[str, Any]]:
    """What was measured, but for the one thing that is never the same twice."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def tensors(record: Mapping[str, Any] | Struct, place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Struct | Mapping):
            yield from tensors(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value


def final_state(path: Path) -> dict[str, Any]:
    """All that the last checkpoint of a trial and the rows of its clients hold."""
    newest = max(path.glob("round-*.safetensors"), key=lambda file: file.name)
    state = checkpoint.load(newest)
    try:
        assert state.models is not None
        return {
            **dict(tensors(state.server)),
            **{f"client {i} {k}": v for i, me in state.clients.items() for k, v in tensors(me)},
            **{f"model {i}": me.y for i, me in state.models.items()},
            "buffers": state.buffers,
            "everyone": state.everyone,
            "attention": None if state.attention is None else state.attention.tolist(),
            "t": state.t,
            "notes": str(state.notes),
        }
    finally:
        state.close()


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


def test_a_run_that_was_killed_many_times_ends_with_the_same_bytes(
    killed: tuple[Path, dict[str, Any]],
) -> None:
    root, _ = killed
    whole = root / "whole"
    assert len(json.loads((whole / "failures.json").read_text())) == 2
    assert sum("stopped" in row for row in rows(whole)) == 2
    for torn in sorted(root.glob("torn*")):
        assert rows(torn) == rows(whole)
        assert (torn / "failures.json").read_bytes() == (whole / "failures.json").read_bytes()
        models = sorted((whole / "models").iterdir())
        assert len(models) == 4
        for model in models:
            assert (torn / "models" / model.name).read_bytes() == model.read_bytes()
            a, b = (final_state(at / "checkpoints" / model.stem) for at in (whole, torn))
            assert a.keys() == b.keys()
            assert [name for name in a if not same(a[name], b[name])] == []


def test_a_second_process_is_refused_and_told_who_the_first_is(
    killed: tuple[Path, dict[str, Any]],
) -> None:
    said, first = killed[1]["refused"]
    assert f"is in use by process {first}" in said
