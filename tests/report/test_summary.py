"""The summary: numbers by hand."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.report.directory import ACCURACY, THREE, A, Accuracies, B, make_run, page_of
from undrift.config import UndriftError
from undrift.measure.quantities import METRICS
from undrift.report import (
    csv_table,
    latex_table,
    markdown_table,
    merge,
    read_run,
    rich_table,
    seeds_csv,
    summarise,
    write_report,
)
from undrift.report.estimate import Estimate, quantile
from undrift.report.merge import renamed
from undrift.report.notes import footnote
from undrift.report.page.panels import panel_data
from undrift.report.score import RMSE


def rows_of(folder: Path) -> dict[str, Any]:
    return {row.arm.name: row for row in summarise(read_run(folder))}


def test_summary_by_hand(tmp_path: Path) -> None:
    rows = rows_of(make_run(tmp_path))
    a, b = rows[A], rows[B]
    assert a.final.mean == pytest.approx(0.65)
    assert a.final.sd == pytest.approx(math.sqrt(0.05**2 + 0.05**2))  # ddof = 1, two seeds
    assert b.final.mean == pytest.approx(0.85)
    assert (a.leads, b.leads) == (False, True)
    assert a.behind.mean == pytest.approx(0.2)  # 0.8 - 0.7 and 0.9 - 0.6
    assert a.behind.sd == pytest.approx(math.sqrt(0.02))
    assert b.behind is None
    assert b.peak.mean == pytest.approx(0.9)
    assert b.tail.mean == pytest.approx(0.85)  # a tenth of four rounds is the last one
    assert a.rounds_to.mean == pytest.approx((15 + 20) / 2)
    assert a.bytes_to.mean == pytest.approx(1500 * (15 + 20) / 2)
    assert b.flops_to.mean == pytest.approx(2e6 * 10)
    assert b.bytes.mean == pytest.approx(1500 * 20)
    assert (a.reached, a.diverged, a.unfinished) == (2, 0, 0)


def test_a_narrow_lead_is_called_narrow(tmp_path: Path) -> None:
    assert "within the spread" not in page_of(make_run(tmp_path))  # 0.2 ± 0.14
    close: Accuracies = dict(ACCURACY) | {(A, 0): (0.9,) * 4}  # behind by -0.1 and 0.3
    assert "within the spread of the seeds" in page_of(make_run(tmp_path, close))


def test_target_reached_by_some_seeds_or_none(tmp_path: Path) -> None:
    folder = make_run(tmp_path, target=0.65)
    row = rows_of(folder)[A]
    assert (row.reached, row.rounds_to.mean, row.rounds_to.sd) == (1, 20, None)
    assert "20 (1/2)" in markdown_table(read_run(folder), summarise(read_run(folder)))
    run = read_run(make_run(tmp_path, target=0.99))
    assert "never" in markdown_table(run, summarise(run))
    assert "No algorithm reaches 99 %" in page_of(tmp_path)


def test_tail_is_the_mean_of_the_last_tenth(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    lines = [
        json.dumps({"algorithm": A, "seed": 0, "round": t, "accuracy": t / 100})
        for t in range(1, 31)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    row = rows_of(folder)[A]
    assert row.tail.mean == pytest.approx(0.29)  # rounds 28, 29, 30
    assert row.unfinished == 1  # seed 1 has not begun


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {key: value for key, value in ACCURACY.items() if key[1] == 0})
    run = read_run(folder)
    rows = summarise(run)
    assert rows[0].final is not None
    assert rows[0].final.sd is None
    assert "±" not in markdown_table(run, rows)
    assert run.arms[0].band("accuracy")[1] is None
    page = page_of(folder)
    assert "one seed" in page
    assert all(switch["key"] != "lines" for switch in panel_data(run)["switches"])


def test_a_diverged_seed_is_counted_and_cannot_win(tmp_path: Path) -> None:
    accuracy: Accuracies = dict(ACCURACY) | {(B, 1): (0.5, 0.7, 0.1)}
    failure = {"algorithm": B, "seed": 1, "round": 15, "reason": "the model is not finite"}
    folder = make_run(tmp_path, accuracy, [failure])
    run = read_run(folder)
    rows = {row.arm.name: row for row in summarise(run)}
    assert (rows[B].diverged, rows[B].unfinished) == (1, 0)
    assert (rows[A].leads, rows[B].leads) == (True, False)
    assert rows[B].final.n == 1
    assert rows[B].behind.mean == pytest.approx(0.7 - 0.8)
    assert rows[B].peak.mean == pytest.approx((0.9 + 0.7) / 2)
    arm = run.arms[1]
    assert arm.shared_rounds.tolist() == [5, 10]  # no mean of the survivors
    mean, sd = arm.band("accuracy")
    assert mean == pytest.approx([0.45, 0.65])
    assert sd == pytest.approx([math.sqrt(0.005)] * 2)
    page = page_of(folder)
    assert "1/2 seeds diverged" in page
    assert "the model is not finite" in page


@pytest.mark.usefixtures("without_figures")
def test_all_seeds_diverged_at_once(tmp_path: Path) -> None:
    failures = [
        {"algorithm": name, "seed": seed, "round": 5, "reason": "not finite"}
        for name, seed in ACCURACY
    ]
    folder = make_run(tmp_path, failures=failures)
    run = read_run(folder)
    rows = summarise(run)
    assert not any(row.leads for row in rows)
    assert all(row.final is None and row.diverged == 2 for row in rows)
    assert "No algorithm finished" in write_report(folder).read_text()


def test_unfinished_runs_are_not_the_best(tmp_path: Path) -> None:
    accuracy: Accuracies = dict(ACCURACY) | {(B, 1): (0.5, 0.7, 0.8)}
    rows = rows_of(make_run(tmp_path, accuracy))
    assert (rows[B].unfinished, rows[B].leads, rows[A].leads) == (1, False, True)


def test_a_tie_has_two_winners(tmp_path: Path) -> None:
    accuracy: Accuracies = {(name, seed): ACCURACY[A, seed] for name, seed in ACCURACY}
    assert all(row.leads for row in rows_of(make_run(tmp_path, accuracy)).values())


def test_student_quantiles() -> None:
    table = {1: 12.70620, 2: 4.30265, 3: 3.18245, 4: 2.77645, 9: 2.26216, 29: 2.04523, 999: 1.96234}
    for dof, t in table.items():  # any book of statistics
        assert quantile(dof) == pytest.approx(t, abs=6e-6)
    assert quantile(2, 0.99) == pytest.approx(9.92484, abs=6e-6)


def test_intervals_of_accuracies_stay_within_their_bounds(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, THREE))
    a, b = summarise(run, "FedAvg")
    assert a.final is not None
    half = 4.30265 * 0.1 / math.sqrt(3) / (0.6 * 0.4)  # sd 0.1, on the logit scale
    low, high = (1 / (1 + 4 / 6 * math.exp(sign * half)) for sign in (1, -1))
    assert a.final.interval == pytest.approx((low, high), abs=1e-6)
    assert b.final is not None
    assert b.difference is not None
    assert b.final.interval is not None
    assert 0 < b.final.interval[0] < b.final.mean < b.final.interval[1] < 1
    plain = b.difference.mean + 4.30265 * (b.difference.sd or 0) / math.sqrt(3)
    assert b.difference.interval is not None
    assert b.difference.interval[1] < 1 > 0.5 * plain
    text = markdown_table(run, [a, b])
    assert "logit scale" in text
    assert "too few" not in text
    errors = Estimate.of([0.1, 0.2, 0.1], RMSE.bounds)
    assert errors is not None
    half = 4.30265 * (errors.sd or 0) / math.sqrt(3)
    ends = [errors.mean * math.exp(sign * half / errors.mean) for sign in (-1, 1)]
    assert errors.interval == pytest.approx(ends, abs=1e-6)
    costs = Estimate.of([1, 2, 3])
    assert costs is not None
    half = 4.30265 / math.sqrt(3)
    assert costs.interval == pytest.approx((2 - half, 2 + half), abs=1e-5)


def test_intervals_at_the_bounds() -> None:
    for value in (0.0, 1.0, 0.5, 1.5):
        same = Estimate.of([value] * 3, (0, 1))
        assert same is not None
        assert same.interval == (value, value)
    wide = Estimate.of([0.0] * 9 + [1e-9], (0, 1))
    assert wide is not None
    assert wide.interval is not None
    assert 0 <= wide.interval[0] < wide.mean < wide.interval[1] <= 1


def test_two_seeds_have_no_interval_and_are_told_so(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    assert all(row.final and row.final.interval is None for row in summarise(run))
    text = markdown_table(run, summarise(run))
    assert "too few for 95 % intervals" in text
    assert "[" not in text
    assert "too few for 95 % intervals" in page_of(tmp_path)
    assert "95 % interval |" not in markdown_table(run, summarise(run, "FedAvg"))


def test_an_interrupted_run_has_no_final_results(tmp_path: Path) -> None:
    early: Accuracies = {key: values[:2] for key, values in ACCURACY.items() if key != (B, 1)}
    folder = make_run(tmp_path, early, seeds=[0, 1])
    run = read_run(folder)
    a, b = rows = summarise(run)
    assert [(row.final, row.tail, row.bytes, row.behind, row.leads) for row in rows] == [
        (None, None, None, None, False)
    ] * 2
    assert (a.unfinished, a.done, a.latest_round) == (2, 10, 10)
    assert (b.unfinished, b.done, b.latest_round) == (2, 0, 10)
    notes = (
        "2/2 seeds unfinished (round 10 of 20, 45.00 ± 7.07 %)",
        "2/2 seeds unfinished (rounds 0 to 10 of 20, 60.00 % in round 10)",
    )
    page = page_of(folder).split("<script")[0]
    for note in notes:
        assert note in markdown_table(run, rows)
        assert note in page
        assert note.replace("%", r"\%").replace("±", r"$\pm$") in latex_table(run, rows)
        assert note in rich_table(run, rows).note
    for text in (markdown_table(run, rows), latex_table(run, rows)):
        assert "| FedAvg | – |" in text or "FedAvg & -- &" in text
        assert "**" not in text
        assert "textbf" not in text
    assert "ends" not in page
    assert "small has done 0 of 4 trials, 35 % of all rounds, so far." in page
    assert "has finished on every seed yet" in page
    first, second = csv.DictReader(io.StringIO(csv_table(run, rows)))
    assert (first["unfinished"], first["rounds"], first["done"]) == ("2", "20", "10")
    assert (first["final_mean"], first["leads"], float(first["latest_mean"])) == ("", "0", 0.45)
    assert (second["done"], second["latest_round"]) == ("0", "10")
    assert {line["final"] for line in csv.DictReader(io.StringIO(seeds_csv(run, rows)))} == {""}


def test_the_lead_is_among_those_that_have_finished(tmp_path: Path) -> None:
    accuracy: Accuracies = dict(ACCURACY) | {(B, 1): (0.5, 0.7, 0.8)}
    page = page_of(make_run(tmp_path, accuracy))
    assert "<b>FedAvg</b> ends highest of those that have finished: 65.00 ± 7.07 % after" in page
    assert "<b>AdaBest</b> ends highest: 85.00" in page_of(make_run(tmp_path))
    alone = {key: values for key, values in ACCURACY.items() if key[0] == A}
    assert "<b>FedAvg</b> ends at 65.00" in page_of(make_run(tmp_path, alone))
    tied = {(name, seed): ACCURACY[A, seed] for name, seed in ACCURACY}
    page = page_of(make_run(tmp_path, tied))
    assert "<b>FedAvg</b> and <b>AdaBest</b> end highest: 65.00 ± 7.07 % after round 20." in page


def regression(folder: Path, **losses: tuple[float | None, ...]) -> Path:
    """A finished run without accuracies, three seeds each; the last losses of each algorithm."""
    accuracy: Accuracies = {
        (f"{name}()", seed): (None,) * 4 for name in losses for seed in range(3)
    }
    make_run(folder, accuracy, empty=tuple(m for m in METRICS if m.endswith("accuracy")))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if row["round"] == 20:
            row["loss"] = losses[row["label"]][row["seed"]]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.usefixtures("without_figures")
def test_regression_is_ranked_by_its_error(tmp_path: Path) -> None:
    folder = regression(tmp_path, Good=(0.01, 0.04, 0.01), Poor=(0.25, 0.25, 0.36))
    run = read_run(folder)
    good, poor = rows = summarise(run, "Good")
    assert (good.leads, poor.leads, run.finished, good.unfinished) == (True, False, True, 0)
    assert good.final is not None
    assert good.final.mean == pytest.approx((0.1 + 0.2 + 0.1) / 3)
    assert good.peak is not None
    assert good.peak.mean == pytest.approx(good.final.mean)
    assert poor.behind is not None
    assert poor.behind.mean == pytest.approx((0.4 + 0.3 + 0.5) / 3)
    assert poor.difference is not None
    assert (poor.difference.mean, poor.wins, poor.losses) == (pytest.approx(0.4), 0, 3)
    text = markdown_table(run, rows)
    assert "| Final RMSE | Behind the best | Last tenth of rounds | Best RMSE |" in text
    assert "| 0.1333 ± 0.05774 |" in text.replace("**", "")
    assert "Root of the mean squared error on the test set" in text
    assert "unfinished" not in text
    assert "taken on the logarithmic scale" in text
    page = write_report(folder).read_text().split("<script")[0]
    assert "accuracy" not in page.split("How to repeat it")[0].lower()
    assert "<b>Good</b> ends lowest: RMSE 0.1333 ± 0.05774 after round 20, 0.4 ± 0.1 below" in page
    assert '<figure class="wide"><figcaption><h3>Test loss' in page
    assert "%" not in text.split("95 % interval")[0]
    first = next(csv.DictReader(io.StringIO(csv_table(run, rows))))
    assert (first["metric"], first["target"]) == ("RMSE", "")


def test_another_loss_and_one_that_is_not_finite(tmp_path: Path) -> None:
    folder = regression(tmp_path, Good=(0.5, 0.5, None))
    (row,) = summarise(read_run(folder))
    assert (row.unfinished, row.leads, row.complete) == (0, False, False)
    assert "1/3 seeds ended without a finite RMSE" in page_of(folder)
    settings = json.loads((folder / "experiment.json").read_text()) | {"loss": "huber"}
    (folder / "experiment.json").write_text(json.dumps(settings))
    (row,) = summarise(read_run(folder))
    assert (row.score.name, row.final and row.final.mean) == ("loss", 0.5)


def test_regression_beside_classes(tmp_path: Path) -> None:
    runs = [
        read_run(make_run(tmp_path / "classes", name="classes")),
        read_run(regression(tmp_path / "numbers", Good=(0.01, 0.04, 0.01))),
    ]
    both = merge([runs[0], renamed(runs[1], "numbers")])
    rows = summarise(both)
    assert [row.leads for row in rows] == [False, True, True]
    text = markdown_table(both, rows)
    assert "| Final accuracy (%) or RMSE | Behind the best |" in text
    assert "65.00 ± 7.07" in text
    assert "0.1333 ± 0.05774" in text


def test_paired_comparison_by_hand(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path))
    a, b = summarise(run, "fedavg")
    assert b.gaps == {0: pytest.approx(0.1), 1: pytest.approx(0.3)}
    assert b.difference is not None
    assert b.difference.mean == pytest.approx(0.2)
    assert (b.wins, b.losses, a.wins, a.losses) == (2, 0, 0, 0)
    assert a.baseline is b.baseline is run.arms[0]
    worse = summarise(run, B)[0]
    assert (worse.wins, worse.losses) == (0, 2)
    text = markdown_table(run, [a, b])
    assert "+20.00" in text
    assert "baseline" in text
    with pytest.raises(UndriftError, match="did you mean 'FedAvg'"):
        summarise(run, "fedavgg")


def test_only_the_same_problem_is_compared(tmp_path: Path) -> None:
    low = {key: tuple(v and v / 2 for v in values) for key, values in ACCURACY.items()}
    hard = make_run(tmp_path / "hard", low, name="hard", data="harder")
    more = make_run(tmp_path / "more", low, name="more", local="Local(lr=1)")
    both = merge([read_run(make_run(tmp_path / "easy", name="easy")), read_run(hard)])
    assert [row.leads for row in summarise(both)] == [False, True, False, True]
    own = summarise(both, "FedAvg")
    assert [row.baseline.label for row in own if row.baseline] == [
        *("FedAvg, digits", "FedAvg, digits"),
        *("FedAvg, harder", "FedAvg, harder"),
    ]
    one = summarise(both, "FedAvg, digits")
    assert [row.baseline is not None for row in one] == [True, True, False, False]
    easy = make_run(tmp_path / "easy", name="easy", local="Local()")
    same = summarise(merge([read_run(easy), read_run(more)]), "FedAvg, lr=0.1")
    assert [row.leads for row in same] == [False, True, False, False]
    assert same[3].gaps[0] == pytest.approx(0.4 - 0.7)


def test_all_samples_in_one_place_are_no_rival(tmp_path: Path) -> None:
    pooled = {("Centralised()", seed): [0.99] * 4 for seed in (0, 1)}
    run = read_run(make_run(tmp_path, ACCURACY | pooled))
    rows = summarise(run)
    assert [row.arm.name for row in rows if row.leads] == [B]
    assert "Centralised aside" in footnote(run, rows)
    page = page_of(tmp_path)
    assert "AdaBest</b> ends highest" in page
    assert "points above FedAvg" in page
