"""Merging: seeds are pooled, and what differs is in the labels."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.directory import ACCURACY, A, Accuracies, B, make_run
from undrift.config import UndriftError
from undrift.report import (
    Run,
    csv_table,
    latex_table,
    markdown_table,
    merge,
    read_run,
    rich_table,
    summarise,
    write_report,
)
from undrift.report.labels import MOST, in_order, title
from undrift.report.settings import contrast, spelled

FORK = "Origin(run='x', algorithm='%s', round=5)"


def one_seed(folder: Path, seed: int, **settings: Any) -> Path:
    accuracy = {key: values for key, values in ACCURACY.items() if key[1] == seed}
    return make_run(folder, accuracy, name=folder.name, hash=f"hash{seed}", **settings)


def together(*folders: Path) -> Run:
    return merge([read_run(folder) for folder in folders])


def labels(*folders: Path) -> list[str]:
    return [arm.label for arm in together(*folders).arms]


@pytest.mark.usefixtures("without_figures")
def test_runs_of_other_seeds_are_one_run(tmp_path: Path) -> None:
    pooled = together(one_seed(tmp_path / "s1", 1), one_seed(tmp_path / "s0", 0))
    whole = read_run(make_run(tmp_path / "whole"))
    assert markdown_table(pooled, summarise(pooled, "fedavg")) == markdown_table(
        whole, summarise(whole, "fedavg")
    )
    assert (pooled.seeds, pooled.experiment["seeds"]) == ((0, 1), [0, 1])
    assert pooled.experiment["hash"] == "hash1, hash0"
    assert len(pooled.partitions) == 1
    page = write_report(pooled, tmp_path / "out", formats=["svg"]).read_text()
    assert page.count('class="copy"') == 2


def test_a_seed_of_two_runs_counts_once(tmp_path: Path) -> None:
    whole, part = make_run(tmp_path / "whole", name="whole"), one_seed(tmp_path / "part", 0)
    lines = (part / "metrics.jsonl").read_text().replace('"seconds": ', '"seconds": 1')
    (part / "metrics.jsonl").write_text("".join(lines.splitlines(keepends=True)[:3]))
    for folders in ((whole, part), (part, whole)):
        run = together(*folders)
        assert [row.final and row.final.n for row in summarise(run)] == [2, 2]
        assert run.finished
    (part / "metrics.jsonl").write_text(lines.replace("0.2,", "0.21,"))
    with pytest.raises(UndriftError, match=r"FedAvg with seed 0: round 5, accuracy 0.2 and 0.21"):
        together(whole, part)
    apart = merge([read_run(whole), read_run(part)], strict=False)
    assert [arm.label for arm in apart.arms][::2] == ["FedAvg · whole", "FedAvg · part"]


def test_a_failure_against_a_result_is_a_contradiction(tmp_path: Path) -> None:
    failure = {"algorithm": A, "seed": 0, "round": 20, "reason": "not finite"}
    whole = make_run(tmp_path / "whole", name="whole")
    failed = one_seed(tmp_path / "failed", 0, failures=[failure])
    with pytest.raises(UndriftError, match="failed in round 20"):
        together(whole, failed)


def test_runs_are_labelled_by_what_differs(tmp_path: Path) -> None:
    for k, text in enumerate(("Local(lr=0.03)", "Local()", "Local(lr=0.3, steps=5)")):
        make_run(tmp_path / str(k), name=str(k), local=text)
    two = together(tmp_path / "0", tmp_path / "1")
    rows = summarise(two)
    names = ["FedAvg, lr=0.03", "AdaBest, lr=0.03", "FedAvg, lr=0.1", "AdaBest, lr=0.1"]
    assert [row.arm.label for row in rows] == names
    told = list(csv.DictReader(io.StringIO(csv_table(two, rows))))
    assert [line["label"] for line in told] == names
    assert "FedAvg, lr=0.1 &" in latex_table(two, rows)
    assert rich_table(two, rows).labels[2] == names[2]
    assert labels(*(tmp_path / str(k) for k in range(3)))[::2] == [
        "FedAvg, lr=0.03, epochs=1",
        "FedAvg, lr=0.1, epochs=1",
        "FedAvg, lr=0.3, steps=5",
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"partition": "Dirichlet(clients=4, alpha=1.0)"}, {}, ["alpha=1", "alpha=0.1"]),
        ({"partition": "IID(clients=4)"}, {}, ["IID", "Dirichlet, alpha=0.1"]),
        ({"data": "Digits()"}, {"data": "./d.py:load(3)"}, ["Digits", "load, 3"]),
        ({"rounds": 25}, {}, ["rounds=25", "rounds=20"]),
        ({"every": 1, "dropout": 0.5}, {}, ["dropout=0.5", ""]),
        ({"code": {"./m.py": "1234567890"}}, {"code": {"./m.py": "x"}}, ["m.py 1234567", "m.py x"]),
        ({"origin": FORK % B}, {}, ["forked after round 5", ""]),
        (
            {"origin": FORK % B},
            {"origin": FORK % A},
            ["forked from AdaBest after round 5", "forked from FedAvg after round 5"],
        ),
    ],
)  # fmt: skip
def test_names_of_settings(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], expected: list[str]
) -> None:
    found = labels(
        make_run(tmp_path / "a", name="a", **one), make_run(tmp_path / "b", name="b", **other)
    )
    assert found[::2] == [f"FedAvg, {text}".removesuffix(", ") for text in expected]


def test_a_report_is_ordered_by_what_differs_and_called_by_what_it_is_about(tmp_path: Path) -> None:
    steps = {"a": "0.1", "b": "1e-3", "c": "0.03", "d": "0.25"}
    runs = [
        read_run(make_run(tmp_path / name, name=name, local=f"Local(lr={lr})"))
        for name, lr in steps.items()
    ]
    ordered = in_order(runs)
    assert [run.name for run in ordered] == ["b", "c", "a", "d"]
    assert title(merge(ordered)) == "digits: FedAvg, AdaBest"
    assert in_order(runs[:1]) == runs[:1]
    assert title(runs[0]) == "a"
    other = {f"setting{k}": k for k in range(MOST + 1)}
    too_much = [read_run(make_run(tmp_path / "e", name="e", **other)), *runs]
    assert in_order(too_much) == too_much


def test_runs_that_differ_in_too_much_go_by_their_names(tmp_path: Path) -> None:
    many = {f"setting{k}": k for k in range(MOST + 1)}
    found = labels(make_run(tmp_path / "a", name="a"), make_run(tmp_path / "b", name="b", **many))
    assert found == ["FedAvg · a", "AdaBest · a", "FedAvg · b", "AdaBest · b"]


def test_algorithms_are_labelled_by_the_parameters_that_differ(tmp_path: Path) -> None:
    other = B.replace("0.96", "0.5")
    accuracy: Accuracies = {(name, 0): (0.1,) * 4 for name in (A, B, other)}
    run = make_run(tmp_path / "a", accuracy, name="a", labels={A: "FedAvg", B: B, other: other})
    expected = ["FedAvg", "AdaBest(beta=0.96)", "AdaBest(beta=0.5)"]
    assert [arm.label for arm in read_run(run).arms] == expected
    third = B.replace("0.96", "0.7")
    more = make_run(tmp_path / "b", {(third, 0): (0.1,) * 4}, name="b")
    assert labels(run, more) == [*expected, "AdaBest(beta=0.7)"]


def test_a_file_that_a_run_does_not_use_is_no_difference(tmp_path: Path) -> None:
    one = one_seed(tmp_path / "a", 0, code={"./m.py": "x"})
    assert labels(one, one_seed(tmp_path / "b", 1)) == ["FedAvg", "AdaBest"]


def test_own_code_is_compared_without_being_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('loaded')")
    place = tmp_path / "mine.py"
    texts = [f"FedGLAD({place}:Half(rate={rate}))" for rate in (0.3, 0.5)]
    assert contrast(texts) == ["FedGLAD(Half(rate=0.3))", "FedGLAD(Half(rate=0.5))"]
    assert contrast(["./a.py:Half()", "./b.py:Half()"]) == ["./a.py:Half()", "./b.py:Half()"]


@pytest.mark.parametrize(
    "text", ["(" * 500, "Local(", "f(**{1: 2})", "a.b(c)(d)", "1", "", "Local(*[1])"]
)
def test_texts_that_are_no_settings_stay_texts(text: str) -> None:
    assert contrast([text, "FedAvg()"])[1] == "FedAvg"
    assert isinstance(spelled("local", text), str)


def test_defaults_are_spelled_out() -> None:
    assert spelled("local", "Local(steps=3)").startswith("Local(lr=0.1, lr_decay=1, ")
    assert "epochs" not in spelled("local", "Local(steps=3)")
    assert spelled("model", "./nets.py:Net(3)") == "./nets.py:Net(3)"
    assert spelled("rounds", 5) == 5
    assert json.dumps(spelled("data", "digits")) == '"digits"'
