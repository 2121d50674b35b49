"""Trials that stop rules end: finished early, the same way after any interruption."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_extend import assert_same, experiment, play
from tests.runs.test_survival import rows
from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.report import read_run, summarise
from undrift.report.tables import markdown_table
from undrift.runs.deployed import facts_in
from undrift.runs.disk import prune
from undrift.runs.export import export
from undrift.runs.fork import forked, plant
from undrift.runs.runner import run
from undrift.runs.verify import verify

EVERY = 2


def stopping(*rules: str, **options: Any) -> Experiment:
    settings: dict[str, Any] = {"algorithms": ["adabest"], "rounds": 9, "every": EVERY}
    return experiment(**settings | options, stop=rules)


def ends(folder: Path) -> list[tuple[str, int, int, str | None]]:
    """Label, seed, last round and rule of each trial, as reports read them."""
    return [
        (arm.label, seed, int(curve.rounds[-1]), arm.stops.get(seed))
        for arm in read_run(folder).arms
        for seed, curve in arm.curves.items()
    ]


@pytest.mark.parametrize(
    ("rule", "last"),
    [
        ("Target(accuracy=0.01)", 2),
        ("Target(accuracy=0.01, evaluations=3)", 6),
        ("Patience(evaluations=2, delta=1.0)", 6),
        ("Budget(bytes='1 B')", 2),
        ("Budget(flops=1.0)", 2),
        ("Budget(rounds=3)", 4),
        ("Budget(seconds=1e-09)", 2),
    ],
)
def test_each_rule_ends_a_trial(rule: str, last: int, tmp_path: Path) -> None:
    *_, end = play(tmp_path, stopping("Target(1.0, evaluations=99)", rule))
    assert (end.kind, end.round, end.note, end.stopped) == ("end", last, None, rule)
    assert ends(tmp_path) == [("AdaBest", 0, last, rule)]
    assert [row["round"] for row in rows(tmp_path)] == [*range(EVERY, last + 1, EVERY)]
    (model,) = (tmp_path / "models").iterdir()
    assert facts_in(model)["round"] == last
    assert verify(tmp_path).problems == []
    assert json.loads((tmp_path / "failures.json").read_text()) == []
    assert f"stopped after round {last}: {rule}" in (tmp_path / "run.log").read_text()


def test_a_stopped_trial_has_the_bits_of_one_with_so_many_rounds(tmp_path: Path) -> None:
    play(tmp_path / "stopped", stopping("Budget(rounds=4)"))
    play(tmp_path / "short", stopping(rounds=4))
    short, stopped = rows(tmp_path / "short"), rows(tmp_path / "stopped")
    assert stopped[-1].pop("stopped") == "Budget(rounds=4)"
    assert stopped == short
    a, b = ((tmp_path / one / "models").iterdir() for one in ("stopped", "short"))
    assert [path.read_bytes() for path in a] == [path.read_bytes() for path in b]


def test_rules_are_part_of_the_identity_and_their_absence_is_not() -> None:
    assert "stop" not in stopping().resolved()
    assert stopping("Target(0.9)").hash != stopping().hash
    assert stopping("target(0.9)").hash == stopping("Target(accuracy=0.9)").hash


def test_resuming_a_stopped_run_does_nothing(tmp_path: Path) -> None:
    play(tmp_path, stopping("Budget(rounds=4)"))
    before = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.suffix != ".log"
        if path.is_file()
    }
    assert [event.kind for event in play(tmp_path)] == ["note"]
    assert {path: path.read_bytes() for path in before} == before


RULES = ("Patience(evaluations=1, delta=1.0)", "Budget(rounds=8)")


@pytest.mark.parametrize("save_every", [1e9, 0], ids=["before its checkpoint", "after it"])
@pytest.mark.parametrize("kill", [3, 4], ids=["before the stop", "at the stop"])
def test_a_trial_that_is_killed_ends_where_it_would_have(
    kill: int, save_every: float, tmp_path: Path
) -> None:
    made = stopping(*RULES)
    play(tmp_path / "whole", made)
    going = run(made, tmp_path / "run", engine="sequential", save_every=save_every)
    while (event := next(going)).round < kill:
        pass
    torn = shutil.copytree(tmp_path / "run", tmp_path / "torn")  # as kill -9 leaves it
    going.close()
    assert not (torn / "models").exists()
    assert event.kind == ("row" if kill == 4 else "round")
    *_, end = play(torn, made)
    assert (end.round, end.stopped) == (4, RULES[0])
    shutil.move(torn, tmp_path / "again" / "whole")  # a run has the name of its folder
    assert_same(tmp_path / "again" / "whole", tmp_path / "whole")


def test_a_stopped_trial_is_not_extended_but_others_are(tmp_path: Path) -> None:
    """With every 2 of 7 rounds, the last evaluation is out of turn; a longer run lacks it."""
    rules = ("Budget(rounds=5)",)
    small = stopping(*rules, rounds=7)
    large = stopping(*rules, rounds=9, algorithms=["adabest", "fedavg"], seeds=(0, 1))
    play(tmp_path / "run", small)
    began = [event.label for event in play(tmp_path / "run", large) if event.kind == "begin"]
    assert began == ["FedAvg", "AdaBest", "FedAvg"]
    play(tmp_path / "at once" / "run", large)
    assert_same(tmp_path / "run", tmp_path / "at once" / "run")


def test_a_rule_that_applies_out_of_turn_is_judged_again_in_a_longer_run(tmp_path: Path) -> None:
    play(tmp_path / "run", stopping("Budget(rounds=5)", rounds=5))
    assert ends(tmp_path / "run") == [("AdaBest", 0, 5, "Budget(rounds=5)")]
    play(tmp_path / "run", stopping("Budget(rounds=5)", rounds=9))
    play(tmp_path / "at once" / "run", stopping("Budget(rounds=5)", rounds=9))
    assert ends(tmp_path / "run") == [("AdaBest", 0, 6, "Budget(rounds=5)")]
    assert_same(tmp_path / "run", tmp_path / "at once" / "run")


@pytest.mark.parametrize("rules", [(), ("Budget(rounds=6)",)])
def test_other_rules_are_another_experiment(rules: Sequence[str], tmp_path: Path) -> None:
    play(tmp_path, stopping("Budget(rounds=4)"))
    with pytest.raises(UndriftError, match="holds another experiment: its stop is"):
        play(tmp_path, stopping(*rules))


def test_a_trial_that_diverges_is_a_failure_and_not_stopped(tmp_path: Path) -> None:
    *_, end = play(tmp_path, stopping("Budget(rounds=1)", algorithms=["fedadam(lr=1e38)"]))
    assert end.note
    assert end.stopped is None
    assert read_run(tmp_path).all_failed


def test_what_needs_a_finished_trial_takes_a_stopped_one(tmp_path: Path) -> None:
    play(tmp_path / "run", stopping("Budget(rounds=4)"))
    assert export(tmp_path / "run", tmp_path / "model.safetensors")["round"] == 4
    assert prune(tmp_path / "run", everything=True) > 0
    fork = forked(tmp_path / "run", ["adabest"], round=6)
    assert list(plant(fork, tmp_path / "fork", tmp_path / "run"))[-1] == (0, 6)


def test_rules_that_cannot_apply_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="hold out clients for it, such as validation=10"):
        stopping("Target(0.9, on='validation')")
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("who,x,y\n" + "".join(f"{k % 6},{k},{k / 7}\n" for k in range(60)))
    table = f"Table(path='{numbers}', target='y', client='who')"
    with pytest.raises(UndriftError, match="there is no accuracy; use Patience"):
        stopping("Target(0.9)", data=table).check()


def test_reports_of_a_run_in_which_one_algorithm_stopped(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "from undrift.measure.stopping import StopRule\n"
        "class Named(StopRule):\n"
        "    def stops(self, rows):\n"
        "        return rows[-1]['algorithm'].startswith('AdaBest') and len(rows) == 2\n"
    )
    folder = tmp_path / "run"
    play(folder, stopping(f"{own}:Named()", algorithms=["adabest", "fedavg"], seeds=(0, 1)))
    found = read_run(folder)
    assert [end[:3] for end in ends(folder)] == [
        *(("AdaBest", 0, 4), ("AdaBest", 1, 4)),
        *(("FedAvg", 0, 9), ("FedAvg", 1, 9)),
    ]
    assert found.finished
    stopped, other = summarise(found)
    assert (stopped.diverged, stopped.unfinished, stopped.complete) == (0, 0, True)
    assert (stopped.stopped, other.stopped) == ((4, 4), ())
    assert "stopped after round 4 of 9" in markdown_table(found, [stopped, other])


@pytest.mark.usefixtures("without_figures")
def test_the_command_says_why_a_trial_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [
        *("fedavg", "--data", "Synthetic(clients=6, samples=20)", "--partition", "Natural()"),
        *("--model", "Linear()", "--sampler", "Uniform(2)", "--seeds", "1", "--rounds", "9"),
        *("--every", "2", "--steps", "2", "--stop", "Target(1.0)", "--stop", "Budget(rounds=4)"),
    ]
    main(["compare", *settings, "--out", str(tmp_path / "run"), "--engine", "sequential"])
    main(["show", str(tmp_path / "run")])
    shown = capsys.readouterr().out
    assert shown.count("stopped after round 4: Budget(rounds=4)") == 2
    assert "FedAvg: stopped after round 4 of 9." in shown
    assert re.search(r"state +finished", shown)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "FedAvg, seed 0, stopped after round 4: Budget(rounds=4)" in page
    assert re.search(r"<b>FedAvg</b> ends at [\d.]+ % after round 4\.", page)
    lines = (tmp_path / "run" / "seeds.csv").read_text().splitlines()
    assert lines[1].endswith(",Budget(rounds=4)")
