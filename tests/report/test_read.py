"""Reading: what is taken, and what is refused with its file named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.directory import ACCURACY, A, B, make_run, page_of
from undrift.config import UndriftError
from undrift.report import merge, read_run, write_report
from undrift.report.figures import write_partition
from undrift.report.page.panels import group_names, panel_data


def test_a_round_written_twice_counts_as_written_last(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"algorithm": A, "seed": 0, "round": 20, "accuracy": 0.99}) + "\n")
    assert read_run(folder).arms[0].curves[0]["accuracy"][-1] == 0.99


def test_equal_labels_are_replaced_by_names(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, labels={A: "same", B: "same"}))
    assert [arm.label for arm in run.arms] == ["FedAvg", "AdaBest"]


def test_all_failed_means_every_algorithm_on_every_seed(tmp_path: Path) -> None:
    failures = [
        {"algorithm": name, "seed": seed, "round": 6, "reason": "x"} for name, seed in ACCURACY
    ]
    assert read_run(make_run(tmp_path / "all", failures=failures)).all_failed
    assert not read_run(make_run(tmp_path / "some", failures=failures[:-1])).all_failed


def test_infinite_values_are_gaps(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    text = (folder / "metrics.jsonl").read_text().replace('"loss": 0.2,', '"loss": Infinity,')
    (folder / "metrics.jsonl").write_text(text)
    run = read_run(folder)
    assert math.isnan(run.arms[0].curves[0]["loss"][0])
    assert panel_data(run)["arms"][0]["mean"]["loss"][0] is None


def test_lists_of_values_are_kept_by_round(tmp_path: Path) -> None:
    folder = make_run(tmp_path, lists=True)
    a, b = read_run(folder).arms
    assert list(a.curves[0].lists) == ["client_accuracy"]
    assert b.curves[1].lists["group_gsi"].shape == (4, 3)
    sheet = b.sheet("group_gsi")
    assert sheet is not None
    assert sheet[:, :2].tolist() == [[1.0 + t, 2.5] for t in (5, 10, 15, 20)]
    assert np.isnan(sheet[:, 2]).all()
    assert a.sheet("group_gsi") is None


def test_lists_that_come_late_or_differ_in_length(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    row = {"algorithm": A, "seed": 0, "round": 20, "accuracy": 0.5, "group_gsi": [1, None]}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    run = read_run(folder)
    late = run.arms[0].curves[0].lists["group_gsi"]
    assert late.shape == (4, 2)
    assert np.isnan(late[:3]).all()
    assert late[3, 0] == 1
    assert run.arms[0].sheet("group_gsi") is None  # the other seed has none
    assert page_of(folder)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["a", "b", "c"], ["a", "b", "c"]),
        (["a", "b"], ["group 1", "group 2", "group 3"]),
        (None, ["group 1", "group 2", "group 3"]),
        ("abc", ["group 1", "group 2", "group 3"]),
    ],
)
def test_names_of_parameter_groups(tmp_path: Path, groups: Any, expected: list[str]) -> None:
    run = read_run(make_run(tmp_path, lists=True, groups=groups))
    assert [group_names(arm) for arm in run.arms] == [[], expected]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    text = (folder / "metrics.jsonl").read_text()
    for cut in (1, 40, 300):
        (folder / "metrics.jsonl").write_text(text[:-cut])
        rounds = read_run(folder).arms[1].curves[1].rounds.tolist()
        assert rounds == ([5, 10, 15, 20] if cut == 1 else [5, 10, 15])


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    (folder / "metrics.jsonl").write_text("")
    run = read_run(folder)
    assert (run.begun, run.done, run.last_round) == (False, 0, 0)
    with pytest.raises(UndriftError, match="no evaluated round"):
        write_report(folder)


def test_rounds_done_count_what_is_missing(tmp_path: Path) -> None:
    failure = {"algorithm": A, "seed": 1, "round": 10, "reason": "not finite"}
    accuracy = {key: values[:2] if key == (A, 0) else values for key, values in ACCURACY.items()}
    run = read_run(make_run(tmp_path, accuracy, [failure]))
    assert run.done == (10 + 20 + 20 + 20) // 4


def test_settings_of_merged_runs_are_those_they_share(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path / name, name=name, every=k)) for k, name in enumerate("ab")]
    both = merge(runs)
    assert both.name == "a, b"
    assert both.experiment["data"] == "digits"
    assert "every" not in both.experiment
    assert [arm.label for arm in both.arms] == [
        *("FedAvg, every=0", "AdaBest, every=0"),
        *("FedAvg, every=1", "AdaBest, every=1"),
    ]
    assert list(both.partitions) == ["a, b"]  # one and the same
    assert merge(runs[:1]) is runs[0]


def test_labels_of_merged_runs_stay_short_where_they_can(tmp_path: Path) -> None:
    for name, algorithm in (("a", A), ("b", B)):
        curves = {key: values for key, values in ACCURACY.items() if key[0] == algorithm}
        make_run(tmp_path / name, curves, name=name)
    both = merge([read_run(tmp_path / "a"), read_run(tmp_path / "b")])
    assert [arm.label for arm in both.arms] == ["FedAvg", "AdaBest"]


def test_runs_of_one_name_are_called_by_their_folders(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path / name, rounds=k)) for k, name in enumerate("ab", 20)]
    assert [run.name for run in merge(runs).members] == [str(run.folder) for run in runs]
    with pytest.raises(UndriftError, match="given twice"):
        merge([runs[0], runs[0]])


Spoil = Callable[[Path], object]


def add_row(folder: Path, **values: Any) -> None:
    row = {"algorithm": A, "seed": 0, "round": 25} | values
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "experiment.json").unlink(), "has no experiment.json"),
        (lambda d: (d / "metrics.jsonl").unlink(), "has no metrics.jsonl"),
        (lambda d: (d / "experiment.json").write_text("{"), "not valid JSON"),
        (lambda d: (d / "experiment.json").write_text("[]"), "must hold an object"),
        (lambda d: (d / "experiment.json").write_bytes(b"\xff\xfe"), "cannot be read"),
        (lambda d: (d / "metrics.jsonl").write_text("{}\n"), "line 1: algorithm None"),
        (lambda d: (d / "metrics.jsonl").write_text('{"algo\n'), "line 1: not valid JSON"),
        (lambda d: add_row(d, group_gsi=1.5), "line 17: group_gsi must be a list"),
        (lambda d: add_row(d, client_accuracy=[0.5, "x"]), "line 17: client_accuracy must be"),
        (lambda d: add_row(d, round=2**80), "line 17: round must be a whole number"),
        (lambda d: (d / "partition.json").write_text('{"label_counts": [[1], [1, 2]]}'), "counts"),
        (lambda d: (d / "partition.json").write_text('{"label_counts": [[-1]]}'), "counts"),
        (lambda d: (d / "failures.json").write_text('[{"seed": 0}]'), "must be a list of"),
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
        ({"seeds": [7]}, "with seed 0 is not in experiment.json"),
        ({"target": "high"}, "target must be a number"),
        ({"algorithms": []}, "at least one entry"),
        ({"algorithms": ["x"]}, "an object with a name"),
        ({"algorithms": [{"name": "x"}, {"name": "x"}]}, "must differ"),
        ({"name": 3}, "name must be a string"),
        ({"rounds": "many"}, "rounds must be a whole number, got 'many'"),
        ({"format": 2, "version": "9.0"}, "written by undrift 9.0 in format 2, this one reads 1"),
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


def test_names_of_clients_and_classes_are_drawn(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    counts = {"label_counts": [[3, 1], [0, 2]], "clients": ["H01", "<b>"], "classes": ["no", "yes"]}
    (folder / "partition.json").write_text(json.dumps(counts), encoding="utf-8")
    (labels,) = read_run(folder).partitions.values()
    assert (labels.clients, labels.classes) == (("H01", "<b>"), ("no", "yes"))
    write_partition(labels, tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in drawn for name in ("H01", "no", "yes"))
    counts["clients"] = ["one name"]  # for two clients
    (folder / "partition.json").write_text(json.dumps(counts), encoding="utf-8")
    (labels,) = read_run(folder).partitions.values()
    assert labels.clients == ()
