"""Notes below the tables: what may be chance, what fell, and what a fork is."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import serialize

from tests.report.directory import THREE, A, Accuracies, B, make_run, page_of
from undrift.report import (
    csv_table,
    latex_table,
    merge,
    read_run,
    summarise,
)
from undrift.report.notes import footnote, notes
from undrift.report.page.page import render_page
from undrift.report.tables import table_columns
from undrift.runs.layout import origin_file


def write_curve(folder: Path, **columns: tuple[float, ...]) -> Path:
    """A run of one algorithm on one seed, evaluated in every round."""
    rounds = len(next(iter(columns.values())))
    make_run(folder, {(A, 0): ()}, rounds=rounds, target=None)
    rows = [
        {"algorithm": A, "seed": 0, "round": t, **{k: v[t - 1] for k, v in columns.items()}}
        for t in range(1, rounds + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"accuracy": (0.3, 0.5, 0.6, 0.65, 0.68, 0.2)}, "fell from 68.00 %"),
        ({"accuracy": (0.1, 0.22, 0.12, 0.2, 0.09, 0.12)}, ""),  # noise
        ({"accuracy": (0.3, 0.6, 0.2)}, ""),  # nobody can tell
        ({"loss": (0.3, 0.25, 0.21, 0.2, 0.19, 0.9)}, "rose from 0.4359"),
    ],
)
def test_a_fall_is_told_from_noise(
    tmp_path: Path, columns: dict[str, tuple[float, ...]], said: str
) -> None:
    (row,) = summarise(read_run(write_curve(tmp_path, **columns)))
    assert notes(row) == said


def test_what_may_be_chance_is_called_so(tmp_path: Path) -> None:
    text = "With so few seeds, differences cannot be told from chance."
    two = read_run(make_run(tmp_path / "two"))
    assert text in footnote(two, summarise(two))
    three = read_run(make_run(tmp_path / "three", THREE))
    assert "Not told from the best by the 95 % interval of the paired differences: FedAvg." in (
        footnote(three, summarise(three))
    )
    clear = {(name, seed): (0.9 if name == B else 0.5,) * 4 for name, seed in THREE}
    sure = read_run(make_run(tmp_path / "sure", clear))
    assert "told" not in footnote(sure, summarise(sure))


def test_few_seeds_are_said_of_the_rows_that_have_them(tmp_path: Path) -> None:
    three = read_run(make_run(tmp_path / "three", THREE, name="three"))
    worse = {(A, seed): (0.1,) * 4 for seed in (0, 1)}
    two = read_run(make_run(tmp_path / "two", worse, name="two", local="Local(lr=0.5)"))
    both = merge([three, two])
    text = footnote(both, summarise(both))
    assert "mean ± sd over 2 to 3 seeds;" in text
    assert "With so few seeds" not in text
    label = next(arm.label for arm in both.arms if arm.run == "two")
    assert (
        f"Too few seeds in common with the best to tell differences from chance: {label}." in text
    )
    assert "<span>2 to 3 seeds</span>" in render_page(both, summarise(both))


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ((90, 10), True),
        ((76, 24), True),
        ((60, 40), False),
        ((3, 5, 2, 1, 6), False),  # few samples
        ((300, 0, 300), False),  # classes without samples do not count
        ((300, 0, 30), True),
        ((500,) * 50 + (20,) * 50, True),
        ((7,), False),
        ((0, 0), False),
        (None, False),  # earlier versions did not record them
    ],
)
def test_accuracy_is_said_to_flatter_where_classes_differ_in_size(
    tmp_path: Path, test: tuple[int, ...] | None, told: bool
) -> None:
    run = read_run(make_run(tmp_path, test=test))
    assert ("accuracy flatters" in footnote(run, summarise(run))) == told
    assert ("Balanced accuracy (%)" in table_columns(run, summarise(run))) == told
    if test == (90, 10):
        assert "10 to 90 % of the test samples" in footnote(run, summarise(run))
        assert "★ marks the best accuracy of those" in footnote(run, summarise(run))


FORK = f"Origin(run='0123', algorithm={B!r}, round=4)"


def write_origin(folder: Path, seed: int, **notes: float) -> None:
    path = origin_file(folder, seed)
    path.parent.mkdir(exist_ok=True)
    facts = json.dumps({"notes": {"bytes_down": 4000, "bytes_up": 2000, "flops": 8e6} | notes})
    path.write_bytes(serialize({}, {"undrift": facts}))


def test_a_fork_says_what_changed_and_what_it_cost_itself(tmp_path: Path) -> None:
    other = B.replace("0.96", "0.5")
    accuracy: Accuracies = {(other, 0): (0.7, 0.8, 0.8, 0.9), (other, 1): (0.1, 0.2, 0.7, 0.9)}
    folder = make_run(tmp_path, accuracy, origin=FORK)
    for seed in (0, 1):
        write_origin(folder, seed)
    run = read_run(folder)
    (row,) = rows = summarise(run)
    said = "fork of 0123 after round 4: AdaBest(beta=0.96) → AdaBest(beta=0.5)"
    assert notes(row) == f"{said}, at the target when first evaluated"
    assert said.replace("→", r"$\to$") in latex_table(run, rows)
    assert "<span>" + said in page_of(folder)
    cells = table_columns(run, rows)
    assert cells["Rounds to 60 %"] == ["≤ 10"]  # 5 and 15
    assert cells["Traffic to 60 % (kB)"] == ["≤ 9.00 of 15.0"]
    assert "Costs of forks: since the fork" in footnote(run, rows)
    line = next(csv.DictReader(io.StringIO(csv_table(run, rows))))
    assert (line["fork_round"], line["bytes_mean"], line["bytes_since_fork"]) == (
        *("4", "30000"),
        "24000",
    )
    totals = replace(run, target=None)
    assert table_columns(totals, summarise(totals))["Traffic (kB)"] == ["24.0 of 30.0"]


def test_a_fork_without_its_origin_tells_the_costs_of_the_whole_past(tmp_path: Path) -> None:
    folder = make_run(tmp_path, origin=FORK, target=None)
    write_origin(folder, 0)
    write_origin(folder, 1, bytes_up=math.nan)
    run = read_run(folder)
    assert table_columns(run, summarise(run))["Traffic (kB)"] == ["30.0", "30.0"]
    origin_file(folder, 0).write_bytes(b"short")
    assert "Costs of forks" not in footnote(run, summarise(read_run(folder)))


def test_a_fork_knows_the_run_beside_it_by_name(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", name="a", hash="0123")]
    runs += [make_run(tmp_path / "b", name="b", origin=FORK, hash="4567")]
    both = merge([read_run(run) for run in runs])
    assert [arm.fork and arm.fork.run for arm in both.arms] == [None, None, "a", "a"]
    assert both.arms[3].label == "AdaBest, forked after round 4"
