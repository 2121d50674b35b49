"""A history is a table of what was put in, and its plots show the means that they say they show."""

import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import undrift
from tests.report.directory import ACCURACY, ROUNDS, B, make_run
from undrift import History, UndriftError
from undrift.report import read_run
from undrift.report.drawing import plot_curves

DATA = undrift.federate(undrift.Digits(), undrift.IID(clients=6), seed=0)


def play(algorithm: undrift.Algorithm, total: int, **more: Any) -> Iterator[undrift.Round]:
    torch.manual_seed(0)
    task = undrift.Task(torch.nn.Linear(64, 10))
    return undrift.rounds(algorithm, task, DATA, total=total, **more)


@pytest.fixture(scope="module")
def rounds() -> list[undrift.Round]:
    return list(play(undrift.AdaBest(), 4, sampler=undrift.Uniform(3), dropout=0.3))


@pytest.fixture
def history(rounds: list[undrift.Round]) -> History:
    made = History()
    for round in rounds:
        made.add(round, accuracy=torch.tensor(0.1 * round.t) if round.t % 2 == 0 else None)
    return made


def test_rows_have_the_facts_of_rounds(history: History, rounds: list[undrift.Round]) -> None:
    assert len(history) == len(rounds) == 4
    assert history["round"].tolist() == [1, 2, 3, 4]
    assert history["drift"] == pytest.approx([round.drift for round in rounds])
    assert history.last["x_norm"] == pytest.approx(float(rounds[-1].server.x.norm()))
    assert history.last["h_norm"] == pytest.approx(float(rounds[-1].server.h.norm()))
    assert history["accuracy"] == pytest.approx([math.nan, 0.2, math.nan, 0.4], nan_ok=True)
    for name in ("bytes_down", "bytes_up", "steps", "samples", "seconds"):
        each = [getattr(round, name) for round in rounds]
        assert history[name] == pytest.approx(np.cumsum(each))
    assert history["dropped"].tolist() == np.cumsum([len(r.dropped) for r in rounds]).tolist()
    assert (history["bytes"] == history["bytes_down"] + history["bytes_up"]).all()
    assert list(history) == history.rows
    assert set(history.columns) == set(history.last)


def test_runs_in_one_history_are_told_apart() -> None:
    history = History()
    for made in (undrift.FedAvg(), undrift.AdaBest()):
        for seed in (0, 1):
            for round in play(made, 2, seed=seed):
                history.add(round, label=type(made).__name__, seed=seed)
    part = history.where(label="AdaBest", seed=1)
    assert [(row["label"], row["seed"], row["round"]) for row in part] == [
        ("AdaBest", 1, 1),
        ("AdaBest", 1, 2),
    ]
    assert len(history.where(seed=0)) == 4
    assert history.rows[1]["bytes_up"] == part.rows[1]["bytes_up"]  # totals begin anew
    assert history.rows[0]["h_norm"] is None


def test_what_would_make_totals_wrong_is_refused(
    history: History, rounds: list[undrift.Round]
) -> None:
    with pytest.raises(UndriftError, match=r"round 2 after round 4 .* label or seed of its own"):
        history.add(rounds[1])
    with pytest.raises(UndriftError, match=r"drift=.*: every row has it"):
        History().add(rounds[0], drift=1.0)
    for wrong in ("high", True, [1, 2], torch.ones(2)):
        with pytest.raises(UndriftError, match=r"accuracy=.*: must be a number"):
            History().add(rounds[0], accuracy=wrong)


def test_unknown_names_are_guessed(history: History) -> None:
    for ask in (
        lambda: history["acuracy"],
        lambda: history.plot("acuracy"),
        lambda: history.plot("drift", x="acuracy"),
        lambda: history.where(acuracy=1),
    ):
        with pytest.raises(UndriftError, match="did you mean 'accuracy'"):
            ask()
    with pytest.raises(UndriftError, match="empty"):
        _ = History().last


def test_read_gives_what_the_run_directory_holds(tmp_path: Path) -> None:
    history = History.read(make_run(tmp_path / "a", empty=("h_norm",)))
    assert len(history) == len(ACCURACY) * len(ROUNDS)
    part = history.where(label="AdaBest", seed=1)
    assert part["round"].tolist() == list(ROUNDS)
    assert part["accuracy"].tolist() == list(ACCURACY[B, 1])
    assert "h_norm" not in history.columns
    both = History.read(tmp_path / "a", make_run(tmp_path / "b", name="other", dropout=0.1))
    assert len(both) == 2 * len(history)
    assert len({row["label"] for row in both}) == 4


def test_a_run_that_is_not_done_can_be_read(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {(B, 0): (0.4, 0.6), (B, 1): ()})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"algorithm": "AdaB')
    assert History.read(folder)["accuracy"].tolist() == [0.4, 0.6]


def test_tables_for_others(history: History, tmp_path: Path) -> None:
    history.to_csv(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [float(row["accuracy"] or "nan") for row in rows]
    assert found == pytest.approx(history["accuracy"], nan_ok=True)
    assert list(rows[0]) == history.columns
    table = history.to_polars()
    assert table.columns == history.columns
    assert table.rows(named=True) == history.rows
    with pytest.raises(UndriftError, match="cannot be written"):
        history.to_csv(tmp_path)


def test_pandas(history: History) -> None:
    pd = pytest.importorskip("pandas")
    assert isinstance(history.to_pandas(), pd.DataFrame)


@pytest.mark.parametrize(
    ("package", "install", "ask"),
    [
        ("pandas", "pandas", lambda history: history.to_pandas()),
        ("polars", r"\.\[data\]", lambda history: history.to_polars()),
        ("matplotlib", r"\.\[report\]", lambda history: history.plot("drift")),
    ],
    ids=["pandas", "polars", "matplotlib"],
)
def test_a_missing_package_is_named(
    package: str, install: str, ask: Any, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UndriftError, match=f'pip install "{install}"'):
        ask(history)


def test_long_histories_are_shown_short_and_escaped() -> None:
    history = History({"label": "<b>", "round": t, "loss": 1 / t} for t in range(1, 101))
    text, page = repr(history), history._repr_html_()
    assert "History: 100 rows" in text
    assert text.splitlines()[-1].split() == ["<b>", "100", "0.01"]
    assert page.count("<tr>") == len(text.splitlines()) - 1 < 15
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "seed" not in text  # there is one, and nobody named it
    assert repr(History()) == "History: 0 rows\n"


values = st.floats(-1e6, 1e6)
curves = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3)),
    st.dictionaries(st.integers(1, 8), values, min_size=1),
    min_size=1,
)


@given(curves, st.floats(0, 0.99))
def test_a_line_is_the_mean_over_seeds_at_the_rounds_that_all_have(
    curves: dict[tuple[str, int], dict[int, float]], smooth: float
) -> None:
    history = History(
        {"label": label, "seed": seed, "round": t, "loss": value}
        for (label, seed), curve in curves.items()
        for t, value in curve.items()
    )
    (ax,) = history.plot("loss").axes
    (smoothed,) = history.plot("loss", smooth=smooth).axes
    means = [line for line in ax.lines if line.get_linewidth() > 1]
    wide = [line for line in smoothed.lines if line.get_linewidth() > 1]
    bands = 0
    for label in dict.fromkeys(label for label, _ in curves):
        seeds = [curve for (name, _), curve in curves.items() if name == label]
        shared = sorted(set.intersection(*map(set, seeds)))
        if not shared:
            continue
        bands += len(seeds) > 1
        line, soft = means.pop(0), wide.pop(0)
        assert line.get_xdata().tolist() == soft.get_xdata().tolist() == shared
        expected = [math.fsum(curve[t] for curve in seeds) / len(seeds) for t in shared]
        assert line.get_ydata() == pytest.approx(expected, abs=1e-6)
        every = [value for curve in seeds for value in curve.values()]
        assert min(every) - 1e-6 <= min(soft.get_ydata())
        assert max(soft.get_ydata()) <= max(every) + 1e-6
    assert not means
    assert not wide
    assert len(ax.collections) == bands


def test_a_band_is_one_standard_deviation_wide() -> None:
    found = (1.0, 2.0, 6.0)
    history = History({"seed": seed, "round": 5, "loss": y} for seed, y in enumerate(found))
    (ax,) = history.plot("loss").axes
    (band,) = ax.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(np.mean(found) + np.std(found, ddof=1))
    assert heights.min() == pytest.approx(np.mean(found) - np.std(found, ddof=1))


def test_smoothing_weighs_what_came_before() -> None:
    history = History({"round": t, "loss": y} for t, y in ((1, 0.0), (2, 1.0), (3, 1.0)))
    (line,) = history.plot("loss", smooth=0.5).axes[0].lines
    assert line.get_ydata() == pytest.approx([0, 2 / 3, 6 / 7])


def test_figures_leave_no_trace(history: History, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    figure = history.plot("accuracy", "drift", "x_norm", "gsi", x="bytes")
    assert dict(matplotlib.rcParams) == before
    assert [ax.get_ylabel() for ax in figure.axes] == ["accuracy", "drift", "x_norm", "gsi"]
    assert {ax.get_xlabel() for ax in figure.axes} == {"Traffic, down and up (kB)"}
    along = figure.axes[1].lines[0].get_xdata()
    assert along == pytest.approx(history["bytes"] / 1e3)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_a_history_is_drawn_as_a_report_draws_its_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path, {**ACCURACY, (B, 2): (0.5, 0.6)})  # one seed is behind
    figure = Figure()
    plot_curves(theirs := figure.subplots(), read_run(folder), "x_norm", "bytes")
    (ours,) = History.read(folder).plot("x_norm", x="bytes").axes
    assert ours.get_xlabel() == theirs.get_xlabel()
    assert len(ours.lines) == len(theirs.lines) == 4
    for one, other in zip(ours.lines, theirs.lines, strict=True):
        assert one.get_xydata().tolist() == other.get_xydata().tolist()
        assert one.get_color() == other.get_color()


def test_axes_of_your_own(history: History) -> None:
    figure = Figure()
    ax = figure.subplots()
    assert history.plot("drift", x="seconds", ax=ax) is figure
    assert len(ax.lines) == 1
    with pytest.raises(UndriftError, match="leave ax out"):
        history.plot("drift", "gsi", ax=ax)


def test_plots_that_cannot_be(history: History) -> None:
    with pytest.raises(UndriftError, match=r"smooth=1: must be"):
        history.plot("drift", smooth=1)
    with pytest.raises(UndriftError, match="label is not a column of numbers"):
        history.plot("label")
    with pytest.raises(UndriftError, match="no values of accuracy by round"):
        History([{"round": 1, "accuracy": None}]).plot("accuracy")


def test_plots_show_the_loss_where_there_is_no_accuracy() -> None:
    numbers = History({"round": t, "loss": 1.0 / t} for t in (1, 2, 3))
    assert [ax.get_ylabel() for ax in numbers.plot().axes] == ["loss"]
