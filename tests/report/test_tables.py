"""The tables: Markdown, LaTeX, CSV and terminals."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest

from tests.report.directory import THREE, A, B, make_run, page_of
from undrift.report import (
    Run,
    csv_table,
    latex_table,
    markdown_table,
    merge,
    read_run,
    rich_table,
    seeds_csv,
    summarise,
)
from undrift.report.notes import footnote
from undrift.report.tables import COLUMNS, table_columns
from undrift.report.units import brief, common_prefix, percent, prefix


def test_without_a_target_the_totals_are_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path, target=None)
    run = read_run(folder)
    text = markdown_table(run, summarise(run))
    assert "Traffic (kB)" in text
    assert "30.0" in text
    assert " to " not in text.splitlines()[0]
    assert "least traffic" not in page_of(folder)


def test_csv_holds_the_numbers_in_full(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    first, second = csv.DictReader(io.StringIO(csv_table(run, summarise(run))))
    assert first["algorithm"] == A
    assert float(first["final_mean"]) == pytest.approx(0.65)
    assert float(second["bytes_to_mean"]) == 15000
    assert float(first["rounds_to_sd"]) == pytest.approx(math.sqrt(12.5))
    assert first["final_high"] == ""  # two seeds are too few
    assert (first["metric"], first["rounds"], first["done"]) == ("accuracy", "20", "20")
    assert (first["leads"], second["leads"], second["behind_mean"]) == ("0", "1", "")


def test_bold_is_the_result_that_algorithms_are_ranked_by(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    rows, names = summarise(run), ("best", "final")
    assert "| **AdaBest ★** | 90.00 ± 0.00 | **85.00 ± 7.07** |" in markdown_table(run, rows, names)
    latex = latex_table(run, rows, names)
    assert r"& 90.00 $\pm$ 0.00 & \textbf{85.00 $\pm$ 7.07} \\" in latex


def test_captions_say_on_what_was_tested(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, test_subset=100))
    assert " Tested on 100 samples of the test set." in footnote(run, summarise(run))


def test_latex_is_escaped(tmp_path: Path) -> None:
    labels = {A: r"[a]_b & 5% $x^2$ #1 {~} \\ \input{x}", B: "*"}
    run = read_run(make_run(tmp_path, labels=labels))
    text = latex_table(run, summarise(run, "*"))
    label = r"{[}a]\_b \& 5\% \$x\textasciicircum{}2\$ \#1 \{\textasciitilde{}\}"
    assert f"{label} \\textbackslash{{}}" in text
    assert "\\input" not in text
    assert r"65.00 $\pm$ 7.07" in text
    assert r"& $-$20.00 &" in text
    assert r"\textbf{{*} $\star$}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows[:3]} == {7}
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2


def test_control_characters_of_labels_are_escaped_below_the_table(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, THREE, labels={A: "\x1b[31mx", B: "y"}))
    assert "\x1b" in footnote(run, summarise(run))
    assert "\x1b" not in rich_table(run, summarise(run)).note


def test_notes_that_were_asked_for_are_there(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    assert table_columns(run, summarise(run), ["notes"])["Notes"] == ["–", "–"]
    assert "Notes: none." in printed(run, ["final", "notes"])


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    rows = summarise(run)
    names = ["rounds", "final", "seeds"]
    heads = ["Algorithm", "Rounds to 60 %", "Final accuracy (%)", "Seeds"]
    assert list(table_columns(run, rows, names)) == heads
    assert markdown_table(run, rows, names).startswith(f"| {' | '.join(heads)} |")
    assert " & ".join(heads).replace("%", r"\%") in latex_table(run, rows, names)
    assert len(rich_table(run, rows, [*names, "notes"]).columns) == 3  # notes are below it
    assert set(table_columns(run, rows)) < {
        head for name in COLUMNS for head in table_columns(run, rows, [name])
    }


def test_balanced_accuracy_has_a_column(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, test=(50, 50)))
    rows = summarise(run)
    assert list(table_columns(run, rows, ["balanced"]).values())[1] == [
        "32.50 ± 3.54",
        "42.50 ± 3.54",
    ]
    assert "balanced" not in rich_table(run, rows).columns
    assert [row["balanced_mean"] for row in csv.DictReader(io.StringIO(csv_table(run, rows)))] == [
        "0.325",
        "0.425",
    ]
    uneven = read_run(make_run(tmp_path / "uneven", test=(90, 10)))
    assert list(rich_table(uneven, summarise(uneven)).columns)[:2] == ["final", "balanced"]
    old = read_run(make_run(tmp_path / "old"))
    assert list(table_columns(old, summarise(old), ["balanced"]).values())[1] == ["–", "–"]


def test_costs_that_nobody_had_have_no_unit(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, target=0.99))
    assert "| Traffic to 99 % | Compute to 99 % |" in markdown_table(run, summarise(run))


def test_every_seed_is_in_the_csv(tmp_path: Path) -> None:
    failure = {"algorithm": A, "seed": 0, "round": 20, "reason": "a, b"}
    run = read_run(make_run(tmp_path, failures=[failure]))
    lines = list(csv.DictReader(io.StringIO(seeds_csv(run, summarise(run, "FedAvg")))))
    assert [(line["label"], line["seed"]) for line in lines] == [
        *(("FedAvg", "0"), ("FedAvg", "1")),
        *(("AdaBest", "0"), ("AdaBest", "1")),
    ]
    assert (lines[0]["failure"], lines[0]["final"], lines[0]["rounds"]) == ("a, b", "", "15")
    assert (lines[2]["difference"], float(lines[3]["difference"])) == ("", pytest.approx(0.3))
    assert float(lines[1]["bytes_to"]) == 1500 * 20


def test_terminal_table_takes_labels_as_they_are(tmp_path: Path) -> None:
    from rich.console import Console

    run = read_run(make_run(tmp_path, labels={A: "[red]x[/red]", B: "y"}))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(rich_table(run, summarise(run)))
    text = console.export_text()
    assert "[red]x[/red]" in text
    assert "65.00 ± 7.07" in text
    assert max(map(len, text.splitlines())) <= 80


def printed(run: Run, names: list[str] | None, width: int = 80) -> str:
    from rich.console import Console

    console = Console(width=width, record=True, file=io.StringIO())
    console.print(rich_table(run, summarise(run), names))
    return console.export_text()


def test_narrow_terminals_leave_out_columns_and_cut_nothing(tmp_path: Path) -> None:
    labels = {A: "FedAvg, lr=0.0003, weight_decay=0.0001", B: "AdaBest, lr=0.03"}
    run = read_run(make_run(tmp_path, labels=labels, target=0.7))
    every = [name for name in COLUMNS if name != "notes"]
    assert "Not shown" not in printed(run, every, 200)
    for width in (50, 80):
        text = printed(run, every, width)
        lines = [line.strip() for line in text.splitlines()]
        assert max(map(len, lines)) <= width
        assert any(line.startswith("weight_decay=0.0001") for line in lines)
        assert any(line.startswith("AdaBest, lr=0.03 ★") for line in lines)
        assert "65.00 ± 7.07" in text
        assert "…" not in text
        for word in footnote(run, summarise(run)).split():
            assert word in text.split()
        flat = " ".join(text.split())
        left = re.findall(r"Not shown at this width: (.*?)\. The page", flat)[0].split(", ")
        assert "compute" in left
        for name in set(every) - set(left):
            _, cells = rich_table(run, summarise(run), every).columns[name]
            assert all(cell in text for cell in cells)
    long = read_run(make_run(tmp_path, labels={A: "x" * 90, B: "y"}))
    assert printed(long, None).count("x") == 90
    first = printed(run, None, 50)
    assert "20 (1/2)" in first  # rounds to the target come before the best accuracy
    assert "85.00 ± 7.07" in first


def test_own_tests_of_clients_have_a_column(tmp_path: Path) -> None:
    plain = read_run(make_run(tmp_path / "plain", lists=True))
    assert not {"Own tests (%)", "Personal (%)"} & set(table_columns(plain, summarise(plain)))
    folder = make_run(tmp_path / "tested", lists=True, client_test=0.2)
    path = folder / "metrics.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for row in found:
        row["client_accuracy_mean"] = row["accuracy"] / 2
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    run = read_run(folder)
    rows = summarise(run)
    assert table_columns(run, rows)["Own tests (%)"] == ["32.50 ± 3.54", "42.50 ± 3.54"]
    assert "42.50 ± 3.54" in printed(run, None)
    assert "Own tests: mean over clients" in footnote(run, rows)
    assert table_columns(run, rows, ["personal"])["Personal (%)"] == ["–", "–"]
    others = json.loads((folder / "experiment.json").read_text()) | {"client_test": 0, "name": "o"}
    (folder / "experiment.json").write_text(json.dumps(others))  # on samples of the training set
    two = merge([run, read_run(folder)])
    cells = table_columns(two, summarise(two))["Own tests (%)"]
    assert cells == ["32.50 ± 3.54", "42.50 ± 3.54", "–", "–"]


@pytest.mark.parametrize(
    ("value", "text"), [(1234.4, "1,234"), (99.96, "100"), (56.71, "56.7"), (8.9, "8.90")]
)
def test_brief_numbers(value: float, text: str) -> None:
    assert brief(value) == text


def test_units() -> None:
    assert prefix(2.5e6) == (1e6, "M")
    assert prefix(0.2) == (1.0, "")
    assert common_prefix([3e9, 2e6, math.nan, 0]) == (1e6, "M")
    assert (percent(0.8), percent(0.825)) == ("80", "82.5")
