"""Metrics as columns: rows that were added are read on, any other change is read anew."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.directory import A, B, make_run
from undrift.config import UndriftError
from undrift.report import read_run
from undrift.runs import columns
from undrift.runs.columns import MetricsReader
from undrift.runs.rows import MetricsFile
from undrift.system.files import replace_file

TRIALS = {(name, seed) for name in (A, B) for seed in (0, 1)}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows that were parsed, of all looks."""
    found: list[Any] = []
    real = columns.parse_row
    monkeypatch.setattr(
        columns, "parse_row", lambda *args: (found.append(real(*args)), found[-1])[1]
    )
    return found


def row(t: int, accuracy: float = 0.5, name: str = A) -> bytes:
    values = {"algorithm": name, "seed": 0, "round": t, "accuracy": accuracy}
    return json.dumps(values).encode() + b"\n"


def look(file: MetricsReader, name: str = A) -> dict[int, float]:
    """Round → accuracy on the first seed."""
    trial = file.read(TRIALS).get((name, 0))
    rounds, values, _ = trial.columns(1e9) if trial else ([], {"accuracy": []}, {})
    return dict(zip(map(int, rounds), map(float, values["accuracy"]), strict=True))


def test_only_what_was_added_is_parsed(tmp_path: Path, parsed: list[Any]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(row(1) + row(2)[:20])  # the second is being written
    file = MetricsReader(path)
    assert look(file) == {1: 0.5}
    path.write_bytes(row(1) + row(2))
    assert look(file) == {1: 0.5, 2: 0.5}
    path.write_bytes(row(1) + row(2) + row(3)[:-1])  # a row that lacks its end only
    assert look(file) == {1: 0.5, 2: 0.5, 3: 0.5}
    path.write_bytes(row(1) + row(2) + row(3) + row(4))
    assert look(file) == {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}
    assert [one["round"] for one in parsed] == [1, 2, 3, 4]


def test_rows_that_a_resume_trimmed_are_gone(tmp_path: Path, parsed: list[Any]) -> None:
    for t in (1, 2, 3):
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(row(t))
    seen = MetricsReader(tmp_path / "metrics.jsonl")
    assert look(seen) == {1: 0.5, 2: 0.5, 3: 0.5}
    metrics = MetricsFile(tmp_path, {(A, 0)})
    metrics.trim((A, 0), 1)
    for t in (2, 3, 4):  # longer than before, when it is looked at again
        metrics.add(json.loads(row(t, 0.25)))
    metrics.close()
    assert look(seen) == {1: 0.5, 2: 0.25, 3: 0.25, 4: 0.25}
    assert len(parsed) == 3 + 4


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda path: replace_file(path, row(1, 0.75) + row(2)),
        lambda path: replace_file(path, row(1, 0.75) + row(2) + row(3)),
        lambda path: path.write_bytes(row(1, 0.75)),
        lambda path: path.write_bytes(row(1, 0.75) + b"\n" + row(2)),
        lambda path: (path.write_bytes(row(1, 0.7) + row(2)), os.utime(path, (1, 1))),
    ],
    ids=["replaced", "replaced and longer", "shrunk", "shifted", "same size"],
)
def test_a_file_that_did_not_just_grow_is_read_anew(tmp_path: Path, change: Change) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(row(1) + row(2))
    file = MetricsReader(path)
    look(file)
    change(path)
    assert look(file) == look(MetricsReader(path)) != {1: 0.5, 2: 0.5}


def test_other_algorithms_are_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(row(1) + row(1, name=B))
    file = MetricsReader(path)
    file.read(TRIALS)
    with pytest.raises(UndriftError, match="line 2: algorithm"):
        file.read({(A, 0)})


def test_an_error_is_found_again_and_may_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(row(1) + b"no row\n")
    file = MetricsReader(path)
    for _ in range(2):
        with pytest.raises(UndriftError, match="line 2: not valid JSON"):
            look(file)
    path.write_bytes(row(1) + row(2))
    assert look(file) == {1: 0.5, 2: 0.5}


def test_a_look_by_parts_ends_as_one_look(tmp_path: Path) -> None:
    folder = make_run(tmp_path, lists=True)
    path = folder / "metrics.jsonl"
    late = {"algorithm": B, "seed": 1, "round": 10, "own": 3, "group_gsi": [1.0]}
    whole = path.read_bytes() + json.dumps(late).encode() + b"\n"
    file = MetricsReader(path)
    for end in (0, 700, 5000, 9000, len(whole)):
        path.write_bytes(whole[:end])
        run = read_run(folder, file)
    for some, all_ in zip(run.curves, read_run(folder).curves, strict=True):
        for name in ("values", "lists"):
            parts, once = getattr(some, name), getattr(all_, name)
            assert parts.keys() == once.keys()
            assert {n: v.tobytes() for n, v in parts.items()} == {
                n: v.tobytes() for n, v in once.items()
            }
    last = run.curves[-1]
    assert last["own"][last.rounds == 10] == 3
    assert last.lists["group_gsi"][1].tolist()[0] == 1.0
