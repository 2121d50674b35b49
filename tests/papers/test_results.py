"""Results: found in run directories of any name, kept once, reported and verified."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undrift.cli.app import main
from undrift.experiment.experiment import Experiment
from undrift.papers import FULL, SMOKE, judging
from undrift.papers.catalogue import read_item
from undrift.papers.claims import Claim
from undrift.papers.curves import draw_curves, over_seeds
from undrift.papers.figures import draw_claims, draw_outcome
from undrift.papers.item import Item
from undrift.papers.judging import Book, outcome, summary
from undrift.papers.measures import measure
from undrift.papers.page import write_page
from undrift.papers.results import Result, Runs, collect, keep, read_results, results_file
from undrift.papers.running import jobs
from undrift.papers.tables import claims_grid, grids, setting_of
from undrift.papers.verifying import verify
from undrift.report.read import read_run
from undrift.runs.runner import run
from undrift.system.files import replace_file
from undrift.system.lock import Lock

TABLE = """source = "Table 1"
claim = "Momentum helps."
kind = "experiment"
seeds = 3
tolerance = 5.0
claims = ["A > B", { test = "C ~ A", cells = "iid" }]
curves = ["accuracy", "x_norm"]

[measures]
accuracy = "Last('accuracy')"
first = "At('accuracy', 1)"

[experiment]
data = "digits"
model = "Linear()"
sampler = "Uniform(3)"
rounds = 3
every = 1
test_subset = 100

[experiment.local]
lr = 0.1
steps = 2

[rows]
A = "FedAvgM(beta=0.5)"
B = "fedavg"
C = { algorithm = ["FedProx(mu=0.1)", "FedProx(mu=1.0)"], by = "first" }
D = { algorithm = "fedavg", settings = { local = { lr = 0.2 } } , ours = true }

[axes.skew]
iid = { partition = "IID(clients=8)" }
skewed = { partition = "Dirichlet(clients=8, alpha=0.1)" }

[printed]
iid = { A = [90.0, 1.0], B = 80.0 }
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Item:
    folder = tmp_path_factory.mktemp("paper")
    (folder / "table1.toml").write_text(TABLE, encoding="utf-8")
    return replace_paper(read_item(folder / "table1.toml"))


def replace_paper(item: Item) -> Item:
    object.__setattr__(item, "paper", "adabest")
    return item


def go(item: Item, out: Path, seeds: int, cells: str = "") -> list[str]:
    """Run what is left; returns the folders that were at work."""
    runs, worked = Runs(out), []
    for cell in item.cells(seeds=seeds, pattern=cells):
        for job in jobs(item, cell, "full", runs):
            for _ in run(job.experiment, job.folder, engine="sequential"):
                pass
            worked.append(job.folder.name)
            runs.look(job.folder)
    return worked


@pytest.fixture(scope="module")
def out(table: Item, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert go(table, folder, 3) == [
        "adabest-table1-iid",
        "adabest-table1-iid-2",
        "adabest-table1-skewed",
        "adabest-table1-skewed-2",
    ]
    return folder


def kept(item: Item, out: Path, results: Path, seeds: int = 3) -> int:
    return keep(item, *collect(item, item.cells(seeds=seeds), "full", Runs(out)), results)


def test_collecting_is_idempotent_and_does_not_depend_on_names(
    table: Item, out: Path, tmp_path: Path
) -> None:
    assert kept(table, out, tmp_path) == 2 * 5 * 3
    before = results_file(table, tmp_path).read_bytes()
    assert kept(table, out, tmp_path) == 0
    assert before == results_file(table, tmp_path).read_bytes()
    other = tmp_path / "others"
    for number, folder in enumerate(sorted(out.iterdir(), reverse=True)):
        shutil.copytree(folder, other / "deeper" / str(number))
    assert go(table, other, 3) == []
    assert kept(table, other, tmp_path / "again") == 30
    assert results_file(table, tmp_path / "again").read_bytes() == before


def test_a_result_is_what_the_run_directory_says(table: Item, out: Path, tmp_path: Path) -> None:
    kept(table, out, tmp_path)
    (one,) = [
        one
        for one in read_results(table, tmp_path)
        if (one.cell, one.row, one.seed) == ("iid", "B", 1)
    ]
    (arm,) = [arm for arm in read_run(out / "adabest-table1-iid").arms if arm.name == "FedAvg()"]
    curve = arm.curves[1]
    assert one.values["accuracy"] == curve["accuracy"][-1]
    assert one.values["first"] == curve["accuracy"][0]
    assert one.x_norm == (curve["x_norm"][0], curve["x_norm"][-1])
    assert one.best == curve["accuracy"].max()
    assert one.samples == (1437 // 8 * 8, 100)
    assert one.failure is None


def test_more_seeds_extend_what_is_there(table: Item, out: Path, tmp_path: Path) -> None:
    own = tmp_path / "runs"
    shutil.copytree(out / "adabest-table1-iid", own / "called otherwise")
    assert go(table, own, 4, "iid") == ["adabest-table1-iid", "adabest-table1-iid-2"]
    assert kept(table, own, tmp_path / "results", 4) == 20


def test_only_what_has_no_result_anywhere_need_be_run(
    table: Item, out: Path, tmp_path: Path
) -> None:
    kept(table, out, tmp_path)
    known = {one.trial for one in read_results(table, tmp_path)}
    (cell,) = table.cells(seeds=3, pattern="iid")
    (larger,) = table.cells(seeds=5, pattern="iid")
    nowhere = Runs(tmp_path / "runs")
    assert jobs(table, cell, "full", nowhere, known) == []
    assert {job.experiment.seeds for job in jobs(table, larger, "full", nowhere, known)} == {(3, 4)}
    assert {job.experiment.seeds for job in jobs(table, larger, "full", nowhere)} == {(*range(5),)}
    begun = run(cell.experiments()[0], tmp_path / "runs" / "begun", engine="sequential")
    next(event for event in begun if event.kind == "round")
    begun.close()
    assert jobs(table, cell, "full", Runs(tmp_path / "runs"), known) == []
    grown = jobs(table, larger, "full", Runs(out), known)  # in folders that have the others
    assert {job.experiment.seeds for job in grown} == {(*range(5),)}
    once = [one for one in read_results(table, tmp_path) if (one.row, one.seed) == ("A", 2)]
    never = [one for one in read_results(table, tmp_path) if one.row == "B"]
    lacking = known - {one.trial for one in once + never}
    left = [job.experiment for job in jobs(table, cell, "full", nowhere, lacking)]
    assert [(len(one.algorithms), one.seeds) for one in left] == [(1, (2,)), (1, (0, 1, 2))]
    assert {job.work for job in jobs(table, cell, "full", nowhere, lacking)} == {9, 27}


def test_work_that_is_done_is_not_counted_as_left(table: Item, out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "runs")
    runs = Runs(tmp_path / "runs")
    (cell,) = table.cells(seeds=4, pattern="iid")
    assert [job.work for job in jobs(table, cell, "full", runs)] == [4 * 9, 9]


def test_results_of_other_settings_are_dropped(table: Item, out: Path, tmp_path: Path) -> None:
    kept(table, out, tmp_path / "results")
    changed = TABLE.replace("lr = 0.1\n", "lr = 0.3\n")
    (tmp_path / "table1.toml").write_text(changed, encoding="utf-8")
    other = replace_paper(read_item(tmp_path / "table1.toml"))
    assert len(read_results(other, tmp_path / "results")) == 30
    assert {
        one.row for one in judging.current(other, read_results(other, tmp_path / "results"))
    } == {"D"}


def test_verdicts(table: Item, out: Path, tmp_path: Path) -> None:
    kept(table, out, tmp_path)
    results = read_results(table, tmp_path)
    judged = outcome(table, results)
    assert [one.verdict.word != "not run" for one in judged.claims] == [True, True, True]
    assert {one.verdict.word for one in judged.values} == {"not comparable"}
    assert judged.values[0].verdict.why == "tested on 100 of 360 samples"
    best = max(
        ("FedProx(mu=0.1)", "FedProx(mu=1.0)"),
        key=lambda name: sum(
            one.values["first"] for one in results if (one.cell, one.algorithm) == ("iid", name)
        ),
    )
    assert judged.cells["iid"][0].rows["C"].algorithm == best
    assert judged.left.trials == 0
    partly = outcome(table, [one for one in results if one.cell == "skewed"])
    assert [one.verdict.word == "not run" for one in partly.claims] == [True, False, True]
    assert partly.left.trials == 15
    assert partly.hours(Book([], judging.Rates({})).rates) is None


def test_what_we_added_is_counted_apart(tmp_path: Path) -> None:
    """The claim "D > B" is about a row of ours, all claims about "skewed" in a setting of ours."""
    text = TABLE.replace('claims = ["A > B"', 'claims = ["D > B", "A > B"').replace(
        'alpha=0.1)" }', 'alpha=0.1)", ours = true }'
    )
    (tmp_path / "table1.toml").write_text(text, encoding="utf-8")
    ours = outcome(read_item(tmp_path / "table1.toml"), [])
    assert summary(ours.counts) == [
        "2 claims: 2 not run",
        "2 values: 2 not run",
        "3 claims in settings that we added: 3 not run",
    ]
    places = [(name, str(where)) for name, (where, *_) in claims_grid(ours).lines]  # type: ignore[union-attr]
    assert places == [
        ("D > B", "2 settings *"),
        ("A > B", "iid"),
        ("A > B", "skewed *"),
        ("C ~ A", "iid"),
    ]


def test_a_diverged_trial_stays_and_loses(table: Item, out: Path, tmp_path: Path) -> None:
    kept(table, out, tmp_path)
    results = [
        replace(one, values={}, failure="not finite") if one.row == "B" else one
        for one in read_results(table, tmp_path)
    ]
    judged = outcome(table, results)
    assert judged.claims[0].verdict.word == "agrees"
    assert judged.claims[0].verdict.why == "B diverged on 3 of 3 seeds"
    assert [one.verdict.word for one in judged.values] == ["not comparable"] * 2
    whole = [replace(one, samples=(1437, 360)) for one in results]
    assert [one.verdict.word for one in outcome(table, whole).values][1] == "disagrees"
    page = write_page(Book([judged], judging.Rates({})), tmp_path / "page")
    assert "3 diverged" in page.read_text(encoding="utf-8")


def test_the_page_shows_everything_escaped(table: Item, out: Path, tmp_path: Path) -> None:
    kept(table, out, tmp_path)
    results = [replace(one, failure=None) for one in read_results(table, tmp_path)]
    object.__setattr__(table, "notes", ["<script>alert(1)</script>"])
    page = write_page(Book([outcome(table, results)], judging.Rates({})), tmp_path / "page")
    text = page.read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "90.00 ± 1.00" in text
    assert "undrift paper run adabest/table1" in text
    assert text.count("<svg") == 3
    markdown = (tmp_path / "page" / "adabest.md").read_text(encoding="utf-8")
    assert "| setting | A | B | C | D | left to run |" in markdown
    assert r"\begin{tabular}" in (tmp_path / "page" / "adabest.tex").read_text(encoding="utf-8")


def test_a_figure_has_a_panel_for_each_setting(table: Item, out: Path, tmp_path: Path) -> None:
    kept(table, out, tmp_path)
    judged = outcome(table, read_results(table, tmp_path))
    run = {id: setting_of(cell) for id, (cell,) in judged.cells.items() if cell.run}
    assert [one.get_title(loc="left") for one in draw_outcome(judged).axes] == [*run.values()]
    assert len(draw_outcome(judged, next(iter(run))).axes) == 1
    assert draw_outcome(judged, "nothing") is None
    assert draw_outcome(outcome(table, [])) is None


def test_curves_are_drawn_from_what_is_kept(
    table: Item, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(table, out, tmp_path)
    results = read_results(table, tmp_path)
    (arm,) = [arm for arm in read_run(out / "adabest-table1-iid").arms if arm.name == "FedAvg()"]
    (one,) = [r for r in results if (r.cell, r.row, r.seed) == ("iid", "B", 1)]
    assert one.curves["round"] == arm.curves[1].rounds.tolist()
    assert one.curves["x_norm"] == pytest.approx(arm.curves[1]["x_norm"], rel=1e-3)
    figure = draw_curves(outcome(table, results), "iid")
    accuracy, _ = figure.axes
    means = {line.get_label(): line.get_ydata() for line in accuracy.lines}
    assert means["B"] == pytest.approx(100 * arm.band("accuracy")[0], rel=1e-3)
    assert draw_curves(outcome(table, [replace(one, curves={}) for one in results])) is None
    assert len(one.curves["round"]) > 2
    monkeypatch.setattr("undrift.papers.results.POINTS", 2)
    kept(table, out, tmp_path)
    ends = [arm.curves[1].rounds[0], arm.curves[1].rounds[-1]]
    assert all(one.curves["round"] == ends for one in read_results(table, tmp_path))


def test_a_seed_that_ended_early_leaves_the_mean_to_the_others() -> None:
    long, short = {"round": [1, 2, 3], "loss": [1.0, 2.0, 3.0]}, {"round": [1], "loss": [None]}
    rounds, values = over_seeds([long, short], "loss")
    assert rounds.tolist() == [1, 2, 3]
    assert np.nanmean(values, axis=0).tolist() == [1, 2, 3]


def test_results_can_be_verified(table: Item, out: Path, tmp_path: Path) -> None:
    kept(table, out, tmp_path)
    old = read_results(table, tmp_path)[0]

    def again(result: Result) -> Any:
        return verify(table, result, tmp_path, tmp_path / "scratch", engine="sequential")

    assert again(old).same
    wrong = replace(old, values=old.values | {"accuracy": 0.999})
    assert not again(wrong).sound
    assert "other bits" in str(again(wrong))
    machines = results_file(table, tmp_path).with_name("machines.json")
    facts = json.loads(machines.read_text(encoding="utf-8"))
    facts[old.machine]["processor"] = "another one"
    replace_file(machines, json.dumps(facts).encode())
    close = replace(old, values=old.values | {"accuracy": old.values["accuracy"] + 0.01})
    assert again(close).sound
    assert "within the tolerance, 0.2 of it; processor another one" in str(again(close))
    assert not again(wrong).sound


def test_an_interval_of_accuracies_ends_within_0_and_100(table: Item, out: Path) -> None:
    results, _ = collect(table, table.cells(seeds=3), FULL, Runs(out))
    values = {0: 0.1, 1: 0.92, 2: 0.93}
    spread = [replace(one, values=one.values | {"accuracy": values[one.seed]}) for one in results]
    row = outcome(table, spread).cells["iid"][0].rows["A"]
    low, high = row.estimate(*table.main).interval  # type: ignore[union-attr, misc]
    assert 0 < low < 65 < high < 100


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    chosen = ["fedglad/table1", "--cells", "mnist", "--rows", "FedAvg*", "--scale", SMOKE]
    main(["paper", "run", *chosen, *place, "--engine", "sequential"])
    told = capsys.readouterr().out
    assert "4 new results" in told
    assert "\nFedAvg is LocalOpt(Clip(FedAvg))\n" in told
    assert not list((tmp_path / "runs").glob("*/checkpoints/*/*"))
    main(["paper", "run", *chosen, *place])
    assert capsys.readouterr().out == "fedglad/table1: 1 of 1 cells are done\n"
    elsewhere = ["--out", str(tmp_path / "elsewhere"), *place[2:], "--missing"]
    main(["paper", "run", *chosen, *elsewhere])
    assert capsys.readouterr().out == "fedglad/table1: 1 of 1 cells are done\n"
    shared = ["fedglad/table[12]", "--cells", "mnist,10%", "--rows", "FedAvg", "--scale", SMOKE]
    main(["paper", "run", *shared, *elsewhere])
    assert "fedglad/table2: 1 new result in" in capsys.readouterr().out
    main(["paper", "list", "fedglad/table1", "--json", *place[2:]])
    (told,) = json.loads(capsys.readouterr().out)
    assert told["item"] == "fedglad/table1"
    main(["paper", "show", "fedglad/table1", "--cells", "mnist", *place[2:]])
    told = capsys.readouterr().out
    assert "claim: FedAvg + FedGLAD > FedAvg" in told
    assert "scale mlp: model = MLP(hidden=(100, 100))" in told
    assert told.endswith("\nundrift paper run fedglad/table1 --cells mnist\n")
    main(["paper", "verify", "fedglad/table1", "--number", "1", *place[2:], "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["item"], told["scale"], told["same"]) == ("fedglad/table1", SMOKE, True)
    main(["paper", "show", "fedglad/table2", "--cells", "mnist,5%"])
    assert capsys.readouterr().out.endswith("\nundrift paper run fedglad/table2 --cells mnist,5%\n")
    main(["paper", "show", "adabest/table2", "--cells", "emnist-l,cp=10%,iid", "--toml"])
    assert 'partition = "IID(clients=110)"' in capsys.readouterr().out
    alike = ["--rows", "AdaptiveFedOpt RMSProp", "--rows", "AdaptiveFedOpt Adam"]
    main(["paper", "show", "fedgbo/figure1", "--cells", "shakespeare", "--toml", *alike])
    (tmp_path / "one.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert len(Experiment.from_toml(tmp_path / "one.toml").algorithms) == 2
    main(["paper", "report", "fedgbo/table4", "--out", str(tmp_path / "page")])
    assert "40 entries of cost tables: 38 agree, 2 disagree" in capsys.readouterr().out


def test_runs_can_be_tracked(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (undrift[tensorboard])")
    place = ["--out", str(tmp_path), "--engine", "sequential", "--track", "tensorboard"]
    chosen = ["fedglad/table1", "--cells", "mnist", "--rows", "FedAvg", "--scale", SMOKE]
    main(["paper", "run", *chosen, *place])
    assert list(tmp_path.glob("*/tensorboard/*"))


def test_time_left_is_told_from_what_was_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    chosen = ["fedgbo/figure1", "--rows", "FedAvg", "--seeds", "1", "--scale", SMOKE]
    with closing(Lock(tmp_path / "runs" / "fedgbo-figure1-cifar100-smoke")):
        main(["paper", "run", *chosen, *place, "--engine", "sequential"])
    told = " ".join(capsys.readouterr().out.split())
    second, third = told.index("2 of 5: "), told.index("4 of 5: ")
    assert "skipped: process" in told[:second]
    assert "; about " not in told[:third]
    assert "; about " in told[third:]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["run", "adabest/table2", "--cells", "mnist"],
            "--cells 'mnist': adabest/table2 has no such cell; the first are",
        ),
        (["run", "fedglad/table5"], "fedglad/table5 has nothing to run: it has no cells or scales"),
        (["run", "fedgbo/table4"], "fedgbo/table4 is computed from the algorithms: it has no"),
        (
            ["run", "fedgbo/figure1", "--rows", "FedAvg", "--rows", "FedProx"],
            "--rows 'FedProx': no such row; there are FedGBO RMSProp; FedGBO SGDm; ",
        ),
        (["run", "adabest/table2", "--seeds", "0"], "--seeds: must be 1 or more, not 0"),
        (["verify", "adabest", "--number", "-1"], "--number: must be 1 or more, not -1"),
        (["verify", "--track", "mlflow"], "--track mlflow: only `undrift paper run` is tracked"),
        (["verify", "fedgbo/table4"], "no results of fedgbo/table4 to compute again"),
        (["list", "--results", "nowhere"], "--results nowhere: there is no such folder"),
        (["collect", "--out", "nowhere"], "--out nowhere: there is no such folder"),
        (["show", "adabest/table2", "--cells", "mnist"], "adabest/table2 has no such cell"),
        (["show", "adabest/table2", "--scale", "tiny"], "no scale is called 'tiny'"),
        (["show", "adabest/table2", "--rows", "FedAvg"], "--rows FedAvg: is for --toml"),
        (["show", "adabest"], "adabest: give one item, such as adabest/"),
        (
            ["show", "fedgbo/figure1", "--cells", "shakespeare", "--toml"],
            'a file has one:\n  --cells "shakespeare" --rows "FedGBO RMSProp" --rows "FedGBO Adam"',
        ),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["paper", *arguments])
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_measures(out: Path) -> None:
    run = read_run(out / "adabest-table1-iid")
    curve = run.arms[0].curves[0]
    accuracy, norm = curve["accuracy"], curve["x_norm"]
    for text, value in {
        "Last('accuracy')": accuracy[-1],
        "Mean('accuracy')": accuracy.mean(),
        "Mean('accuracy', 1)": accuracy[-1],
        "Best('accuracy')": accuracy.max(),
        "Growth('x_norm', 1)": norm[-1] / norm[0],
        "Fall('accuracy', 2)": accuracy[0] - accuracy[1],
        "Spread('x_norm')": norm.std(ddof=1),
    }.items():
        assert measure(text).of(curve) == pytest.approx(value)
    assert measure("Last('accuracy')").factor == 100
    assert measure("Growth('x_norm', 1)").factor == 1


def test_claims_are_drawn_with_what_they_say_on_the_right(
    table: Item, out: Path, tmp_path: Path
) -> None:
    kept(table, out, tmp_path)
    turned = copy(table)
    object.__setattr__(turned, "claims", [Claim.of("B < A", ["A", "B"], table.measures)])
    results = read_results(table, tmp_path)
    axes = draw_claims([outcome(one, results) for one in (table, turned)]).axes[0]
    labels = [one.get_text().removeprefix("adabest/table1, ") for one in axes.get_yticklabels()]
    assert labels == ["iid: A > B", "skewed: A > B", "iid: B < A", "skewed: B < A"]
    means = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert means[:2] == pytest.approx(means[2:])
    assert draw_claims([outcome(table, [])]) is None


def test_rows_of_a_cell_may_be_run_one_after_the_other(table: Item, tmp_path: Path) -> None:
    (cell,) = table.cells(seeds=1, pattern="iid")
    for chosen, folders in (["B"], [""]), (["A"], ["-2"]), (["*"], ["", "-3"]), (["*"], []):
        found = jobs(table, cell.only(chosen), "full", Runs(tmp_path))
        assert [job.folder.name for job in found] == [f"adabest-table1-iid{n}" for n in folders]
        for job in found:
            happening = run(job.experiment, job.folder, engine="sequential")
            for _ in happening:
                break
            happening.close()
            (again,) = jobs(table, cell.only(chosen), "full", Runs(tmp_path))[:1]
            assert again == job
            for _ in run(job.experiment, job.folder, engine="sequential"):
                pass


def test_each_claim_is_judged_at_the_largest_scale_that_tells(
    table: Item, out: Path, tmp_path: Path
) -> None:
    kept(table, out, tmp_path)
    both = copy(table)
    object.__setattr__(both, "scales", {"small": {"rounds": 1}})
    full = [one for one in read_results(table, tmp_path) if one.cell == "iid"]
    small = [replace(one, scale="small") for one in full]

    def scale(results: list[Result]) -> list[tuple[str, str]]:
        claims = outcome(both, [*results, *small]).claims
        return [(one.what, one.cell.scale) for one in claims if one.cell.cell.id == "iid"]

    assert scale(full) == [("A > B", "full"), ("C ~ A", "full")]
    assert scale([one for one in full if one.row != "C"]) == [("A > B", "full"), ("C ~ A", "small")]
    assert scale([one for one in full if one.seed == 0]) == [("A > B", "small"), ("C ~ A", "small")]
    some = outcome(both, [one for one in [*full, *small] if one.scale != "full" or one.row == "A"])
    (grid, _) = grids(some, judging.Rates({}))
    assert [name for name, _ in grid.lines] == ["iid", "iid (scale small)"]
