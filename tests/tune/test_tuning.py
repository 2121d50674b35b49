"""Studies: killed, shared, halved, and never shown the test data."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tune.studies import OPTIONS, experiment, ledger, play, rows, study
from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.runs.runner import run
from undrift.tune import Study
from undrift.tune.search import draw
from undrift.tune.store import Result, Store

QUICK = (
    *(
        "--data",
        "Synthetic(clients=8, samples=12)",
        "--partition",
        "Natural()",
        "--model",
        "linear",
    ),
    *("--sampler", "Uniform(2)", "--steps", "1", "--batch-size", "4", "--rounds", "2"),
    *("--engine", "sequential", "--validation", "3"),
)


def test_a_killed_study_goes_on_and_two_processes_share_one(tmp_path: Path) -> None:
    """Killed at its writes until it survives: the same trials, with the same results."""
    command = [sys.executable, "-m", "tests.tune.killing", str(tmp_path), "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    killed, status, ended = done.stdout.split(" ", 2)
    assert (status, ended) == ("0", "[0, 0]")
    assert int(killed) >= 4
    whole = ledger(tmp_path / "whole")
    assert len(whole) == 4
    assert ledger(tmp_path / "torn") == whole
    shared = ledger(tmp_path / "shared")  # halving depends on who is first, settings do not
    assert [one["settings"] for one in shared] == [one["settings"] for one in whole]
    for one in shared:
        log = (tmp_path / "shared" / one["run"] / "run.log").read_text()
        assert log.count(" is done") == len(one["rungs"])  # nothing was run twice


@pytest.mark.parametrize("search", ["random", "tpe", "grid", "qmc"])
def test_where_a_study_stopped_does_not_matter(tmp_path: Path, search: str) -> None:
    made = study("fedavg", search=search, trials=3)
    play(made, tmp_path / "whole")
    for stop in (1, 6, 9):
        play(made, tmp_path / "torn", stop)
    play(made, tmp_path / "torn")
    assert ledger(tmp_path / "torn") == ledger(tmp_path / "whole")


def test_a_promoted_trial_has_the_bits_of_one_run(tmp_path: Path) -> None:
    made = study("adabest", rounds=4, trials=3, halving=True, min_rounds=1)
    assert made.rungs == (2, 4)
    play(made, tmp_path / "study")
    found = ledger(tmp_path / "study")
    assert sorted(line["rounds"] for line in found) == [2, 2, 4]
    (best,) = [line for line in found if line["rounds"] == 4]
    assert best["rungs"]["2"] == max(line["rungs"]["2"] for line in found)
    alone = made.arms[0].at(best["settings"])
    list(run(alone, tmp_path / "alone", **OPTIONS))
    promoted = tmp_path / "study" / best["run"]
    assert rows(promoted) == rows(tmp_path / "alone")
    (model,) = (promoted / "models").iterdir()
    assert model.read_bytes() == (tmp_path / "alone" / "models" / model.name).read_bytes()


def test_trials_have_no_test_data_and_winners_meet_them_once(tmp_path: Path) -> None:
    made = study("fedavg", over={"local.lr": [0.05, 0.2]}, search="grid", final_seeds=1)
    events = play(made, tmp_path)
    for line in ledger(tmp_path):
        facts = json.loads((tmp_path / line["run"] / "experiment.json").read_text())
        assert (facts["test"], facts["test_samples"]) == (False, 0)
        for row in rows(tmp_path / line["run"]):
            tested = {key for key in row if key.endswith(("accuracy", "loss")) and row[key]}
            assert {one for one in tested if not one.startswith("validation_")} == {"train_loss"}
            assert "validation_accuracy" in tested
    finals = [event for event in events if event.kind == "final"]
    assert [event.settings for event in finals] == [
        max(ledger(tmp_path), key=lambda one: one["objective"])["settings"],
        {"local.lr": 0.1},
    ]
    assert all(event.final and list(event.final["test"]) == ["1"] for event in finals)
    text = (tmp_path / "table.md").read_text()
    assert "without an interval; --final-seeds 3" in text
    assert "the test data had no part in it" in text
    play(made, tmp_path)  # done: nothing is run again
    assert text == (tmp_path / "table.md").read_text()


def test_divergence_is_the_worst_result(tmp_path: Path) -> None:
    made = study("fedavg", over={"local.lr": [1e38, 0.1]}, search="grid", rounds=3)
    play(made, tmp_path)
    bad, good = sorted(ledger(tmp_path), key=lambda one: -one["settings"]["local.lr"])
    assert bad["objective"] is None
    assert "not finite" in bad["failure"]
    assert good["objective"] is not None
    assert "lr = 0.1" in (tmp_path / "best-FedAvg.toml").read_text()
    assert "2 (1 failed)" in (tmp_path / "table.md").read_text()


def test_all_trials_may_fail(tmp_path: Path) -> None:
    made = study("fedavg", over={"local.lr": [1e38, 2e38]}, search="grid", final_seeds=1, rounds=3)
    play(made, tmp_path)
    assert "all failed" in (tmp_path / "table.md").read_text()
    assert not list(tmp_path.glob("best-*.toml"))


def test_less_is_better_for_numbers(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    lines = [f"{k % 6},{k % 7},{(k % 7) / 7}" for k in range(60)]
    table.write_text("\n".join(["who,x,y", *lines]) + "\n")
    data = f"Table({str(table)!r}, target='y', client='who')"
    made = experiment("fedavg", data=data, validation=2, rounds=3)
    play(
        study(experiment=made, over={"local.lr": [1e30, 0.001, 0.1]}, search="grid"), tmp_path / "s"
    )
    found = {line["settings"]["local.lr"]: line["objective"] for line in ledger(tmp_path / "s")}
    assert found[1e30] is None
    best = Experiment.from_toml(tmp_path / "s" / "best-FedAvg.toml")
    assert found[best.local.lr] == min(one for one in found.values() if one is not None)
    assert "Validation RMSE" in (tmp_path / "s" / "table.md").read_text()


def test_the_winner_goes_through_a_file(tmp_path: Path) -> None:
    made = study("FedGLAD(FedAvg())", trials=2, final_seeds=2)
    play(made, tmp_path)
    best = Experiment.from_toml(tmp_path / "best-FedGLAD_FedAvg.toml")
    winner = max(ledger(tmp_path), key=lambda one: (one["objective"], -one["number"]))
    assert best == made.final(made.arms[0], winner["settings"])
    assert (best.seeds, best.test) == ((1, 2), True)


def test_a_budget_ends_the_search(tmp_path: Path) -> None:
    play(study("fedavg", "adabest", trials=None, budget="rounds=5"), tmp_path)
    numbers = [(line["algorithm"], line["number"]) for line in ledger(tmp_path)]
    assert numbers == [(name, number) for number in range(3) for name in ("FedAvg", "AdaBest")]
    with pytest.raises(UndriftError, match="write rounds=5000"):
        study(budget="steps=5")


def test_a_study_may_have_more_trials_but_no_other_settings(tmp_path: Path) -> None:
    play(study("fedavg", trials=1), tmp_path)
    play(study("fedavg", trials=2), tmp_path)
    assert len(ledger(tmp_path)) == 2
    with pytest.raises(UndriftError, match="its seed is 0, not 1"):
        play(study("fedavg", trials=2, seed=1), tmp_path)
    with pytest.raises(UndriftError, match="its rounds is 2, not 3"):
        play(study("fedavg", trials=2, rounds=3), tmp_path)


def test_a_search_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.tune.search.find_spec", lambda name: None)
    with pytest.raises(UndriftError, match="search='cmaes' needs cmaes"):
        play(study("fedavg", search="cmaes"), tmp_path)


@pytest.mark.parametrize(("search", "package"), [("gp", "scipy"), ("cmaes", "cmaes"), ("tpe", "")])
def test_a_search_learns_from_what_it_is_told(tmp_path: Path, search: str, package: str) -> None:
    """Drawn in a new process, the same; drawn after good results, not by chance."""
    if package:
        pytest.importorskip(package, exc_type=ImportError)
    over = {"local.lr": "log(0.01, 1)", "AdaBest.mu": "log(0.002, 0.2)"}
    made = study("adabest", search=search, over=over, trials=40)
    (arm,) = made.arms

    def store() -> Store:
        return Store(tmp_path, made.arms, lower=False)

    for _ in range(26):
        here = store()
        record = here.add(arm, *draw(made, arm, here.records(arm), here))
        score = 1 - abs(math.log10(record.settings["local.lr"]) + 0.5)  # best at 0.32
        here.put(record, Result(2, score, (score,), None, {"rounds": 2.0}))
        here.close(here.records(arm)[-1], complete=True)
    drawn = [one.settings["local.lr"] for one in store().records(arm)]
    assert drawn[-1] == draw(made, arm, store().records(arm)[:-1], store())[0]["local.lr"]
    away = [abs(math.log10(one) + 0.5) for one in drawn[-13:]]
    assert sum(away) / len(away) < 0.4  # by chance 0.63, with a standard deviation of 0.11


def test_local_work_batching_and_cohorts_are_searched(tmp_path: Path) -> None:
    over: dict[str, Any] = {"local.epochs": [1, 2], "local.batching": ["wrap", "drop"]}
    over |= {"local.batch_size": "int(2, 4)", "sampler.clients": "int(2, 4)"}
    made = experiment("fedavg", local="Local(lr=0.1, batch_size=4)")
    play(study(experiment=made, over=over, trials=4, final_seeds=1), tmp_path)
    best = Experiment.from_toml(tmp_path / "best-FedAvg.toml")
    won = max(ledger(tmp_path), key=lambda one: (one["objective"], -one["number"]))["settings"]
    assert (best.local.epochs, best.local.batching) == (won["local.epochs"], won["local.batching"])
    assert (best.local.batch_size, best.sampler.clients) == (
        won["local.batch_size"],
        won["sampler.clients"],
    )
    assert len({line["settings"]["sampler.clients"] for line in ledger(tmp_path)}) > 1


OWN = """
from dataclasses import dataclass
from undrift.core import Algorithm, real

@dataclass(frozen=True)
class Half(Algorithm):
    rate: float = real(0.5, gt=0, tune="linear(0.1, 1)")
    other: float = real(0.5, gt=0)
"""


def test_an_own_algorithm_is_tuned_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("mine.py").write_text(OWN, encoding="utf-8")
    flags = [*QUICK, "--trials", "2", "--final-seeds", "0", "--json"]
    main(["tune", "./mine.py:Half", *flags, "--out", "a"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["begin", "trial", "begin", "trial", "done"]
    assert lines[1]["settings"] == {"local.lr": 0.1, "Half.rate": 0.5}
    assert math.isfinite(lines[3]["result"]["objective"])
    main(["resume", "a", "--json"])
    assert json.loads(capsys.readouterr().out) == {"event": "done", "folder": "a"}
    main(["tune", "./mine.py:Half", "--over", "Half.other=1,2", *flags, "--out", "b"])
    assert {one["settings"]["Half.other"] for one in ledger(Path("b"))} <= {0.5, 1, 2}
    Path("mine.py").write_text(OWN + "\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["resume", "a"])
    assert "was edited" in capsys.readouterr().err


def test_a_file_with_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    table = '[tune]\ntrials = 2\nfinal_seeds = 0\n[tune.over]\n"local.lr" = "log(0.1, 1)"\n'
    file.write_text(experiment("fedavg").to_toml() + table)
    assert Experiment.from_toml(file) == experiment("fedavg")
    made = Study.from_toml(file, search="qmc")
    assert (made.trials, made.search, str(made.arms[0].knobs[0].space)) == (2, "qmc", "log(0.1, 1)")
    main(["tune", str(file), "--set", "rounds=1", "--trials", "1", "--out", str(tmp_path / "s")])
    assert [line["rounds"] for line in ledger(tmp_path / "s")] == [1]
    assert "undrift run" in capsys.readouterr().out
    file.write_text(file.read_text().replace("trials", "trails"))
    for given, why in (
        ([str(file)], "did you mean 'trials'"),
        ([str(file), "--rounds", "3"], "change them by --set"),
        ([str(file), "fedavg"], "not both"),
        (["fedavg", "--set", "rounds=1"], "is for a TOML file"),
        (["fedavg", "--over", "local.lr"], "write NAME=SPACE"),
    ):
        with pytest.raises(SystemExit):
            main(["tune", *given])
        assert why in capsys.readouterr().err


def test_the_first_trial_has_the_defaults_if_the_space_has(tmp_path: Path) -> None:
    spaces: list[dict[str, Any]] = [{"local.lr": "log(0.1, 1)"}, {"local.lr": "log(0.2, 1)"}]
    for name, over in zip("ab", spaces, strict=True):
        play(study("fedavg", over=over, trials=1), tmp_path / name)
    first, other = (ledger(tmp_path / name)[0]["settings"]["local.lr"] for name in "ab")
    assert first == 0.1
    assert other >= 0.2
