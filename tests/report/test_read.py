"""Reading: what is taken, and what is refused with its file named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.directory import A, B, make_run
from undrift.config import UndriftError
from undrift.report import read_run
from undrift.report.panels import panel_data


def test_a_round_written_twice_counts_as_written_last(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"algorithm": A, "seed": 0, "round": 20, "accuracy": 0.99}) + "\n")
    assert read_run(folder).curves[A, 0]["accuracy"][-1] == 0.99


def test_equal_labels_are_replaced_by_names(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, labels={A: "same", B: "same"}))
    assert [arm.label for arm in run.arms] == [A, B]


def test_infinite_values_are_gaps(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    text = (folder / "metrics.jsonl").read_text().replace('"loss": 0.2,', '"loss": Infinity,')
    (folder / "metrics.jsonl").write_text(text)
    run = read_run(folder)
    assert math.isnan(run.curves[A, 0]["loss"][0])
    assert panel_data(run)["arms"][0]["mean"]["loss"][0] is None


Spoil = Callable[[Path], object]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "experiment.json").unlink(), "has no experiment.json"),
        (lambda d: (d / "metrics.jsonl").unlink(), "has no metrics.jsonl"),
        (lambda d: (d / "experiment.json").write_text("{"), "not valid JSON"),
        (lambda d: (d / "experiment.json").write_text("[]"), "must hold an object"),
        (lambda d: (d / "experiment.json").write_bytes(b"\xff\xfe"), "cannot be read"),
        (lambda d: (d / "metrics.jsonl").write_text(""), "no evaluated round"),
        (lambda d: (d / "metrics.jsonl").write_text("{}\n"), "line 1: algorithm None"),
        (lambda d: (d / "metrics.jsonl").write_text('{"algo'), "line 1: not valid JSON"),
        (lambda d: (d / "partition.json").write_text('{"label_counts": [[1], [1, 2]]}'), "counts"),
        (lambda d: (d / "partition.json").write_text('{"label_counts": [[-1]]}'), "counts"),
        (lambda d: (d / "verdicts.json").write_text('[{"seed": 0}]'), "must be a list of"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, spoil: Spoil, message: str) -> None:
    spoil(make_run(tmp_path))
    with pytest.raises(UndriftError, match=re.escape(message)):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "seeds must be a list"),
        ({"seeds": [7]}, "seed 0 is not in experiment.json"),
        ({"target": "high"}, "target must be a number"),
        ({"algorithms": []}, "at least one entry"),
        ({"algorithms": ["x"]}, "an object with a name"),
        ({"algorithms": [{"name": "x"}, {"name": "x"}]}, "must differ"),
        ({"name": 3}, "name must be a string"),
    ],
)
def test_broken_experiments_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UndriftError, match=message):
        read_run(make_run(tmp_path, **change))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("round", -1, "round must be"),
        ("round", 2.5, "round must be"),
        ("seed", True, "seed True"),
        ("accuracy", "high", "accuracy must be a number or null, got 'high'"),
    ],
)
def test_broken_rows_are_refused(tmp_path: Path, field: str, value: Any, message: str) -> None:
    folder = make_run(tmp_path)
    row = {"algorithm": A, "seed": 0, "round": 5, "accuracy": 0.5} | {field: value}
    (folder / "metrics.jsonl").write_text(json.dumps(row))
    with pytest.raises(UndriftError, match=message):
        read_run(folder)
