"""Runs that grow: more seeds, rounds and algorithms, with the bits of a run asked for at once."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_survival import final_state, rows, same
from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.report import read_run, summarise
from undrift.report.tables import markdown_table
from undrift.runs.extend import extended
from undrift.runs.fork import forked, plant
from undrift.runs.identity import stored_experiment
from undrift.runs.runner import Event, run
from undrift.runs.verify import verify

SMALL: dict[str, Any] = {"algorithms": ["adabest", "fedadam(lr=1e38)"], "rounds": 4, "seeds": (0,)}
LARGE: dict[str, Any] = {
    "algorithms": [*SMALL["algorithms"], "AdaBest(mu=0.5)"],
    "rounds": 7,
    "seeds": (0, 1),
}


def experiment(**options: Any) -> Experiment:
    """Clients' memories, a sampler that learns, all clients' models, and a trial that diverges."""
    texts: dict[str, Any] = {
        "data": "Synthetic(clients=6, samples=20)",
        "partition": "Natural()",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=2, batch_size=4)",
        "sampler": "AdaFL(clients=2)",
        "every": 3,
        "all_clients": True,
    }
    return Experiment(**texts | SMALL | options)


def play(folder: Path, made: Experiment | None = None, **options: Any) -> list[Event]:
    where: dict[str, Any] = {"engine": "sequential", "save_every": 1e9}
    return list(run(made or stored_experiment(folder), folder, **where | options))


def results(folder: Path) -> dict[str, Any]:
    """What must be as if asked for at once: settings, rows, failures, models, report."""
    found = read_run(folder)
    facts = json.loads((folder / "experiment.json").read_text())
    return {
        "settings": {k: v for k, v in facts.items() if k not in ("name", "command")},
        "toml": (folder / "experiment.toml").read_text(),
        "rows": rows(folder),
        "failures": json.loads((folder / "failures.json").read_text()),
        "models": {path.name: path.read_bytes() for path in (folder / "models").iterdir()},
        "report": markdown_table(found, summarise(found)),
    }


def states(folder: Path) -> dict[str, dict[str, Any]]:
    models = (folder / "models").iterdir()
    return {path.stem: final_state(folder / "checkpoints" / path.stem) for path in models}


def assert_same(a: Path, b: Path) -> None:
    assert verify(a).problems == []
    assert results(a) == results(b)
    left, right = states(a), states(b)
    assert left.keys() == right.keys()
    for name, state in left.items():
        assert state.keys() == right[name].keys()
        assert [key for key in state if not same(state[key], right[name][key])] == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    play(folder, experiment())
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    play(folder, experiment(**LARGE))
    return folder


@pytest.fixture
def begun(small: Path, tmp_path: Path) -> Path:
    return shutil.copytree(small, tmp_path / "run")


@pytest.mark.parametrize("change", ["seeds", "rounds", "algorithms"])
def test_only_what_is_missing_is_run(change: str, begun: Path, tmp_path: Path) -> None:
    larger = experiment(**{change: LARGE[change]})
    began = [(e.label, e.seed, e.round) for e in play(begun, larger) if e.kind == "begin"]
    assert (
        began
        == {
            "seeds": [("AdaBest", 1, 0), ("FedAdam", 1, 0)],
            "rounds": [("AdaBest", 0, 4)],
            "algorithms": [("AdaBest(mu=0.5, beta=0.96)", 0, 0)],
        }[change]
    )
    play(tmp_path / "at once", larger)
    assert_same(begun, tmp_path / "at once")
    assert [event.kind for event in play(begun)] == ["note"]


def test_a_run_grows_in_all_ways_at_once_or_one_by_one(begun: Path, large: Path) -> None:
    once = shutil.copytree(begun, begun.with_name("once"))
    play(once, experiment(**LARGE))
    assert_same(once, large)
    for change in ("algorithms", "rounds", "seeds"):
        settings = (
            {"seeds": 2} if change == "seeds" else {"rounds": 7} if change == "rounds" else {}
        )
        more = ["AdaBest(mu=0.5)"] if change == "algorithms" else []
        play(begun, extended(begun, **settings, algorithms=more))
    assert_same(begun, large)


def test_a_run_that_was_interrupted_grows(tmp_path: Path, large: Path) -> None:
    stopped = run(experiment(), tmp_path, engine="sequential", save_every=1e9)
    while next(stopped).round < 2:
        pass
    stopped.close()
    play(tmp_path, experiment(**LARGE))
    assert_same(tmp_path, large)


def test_without_checkpoints_a_trial_runs_again(begun: Path, large: Path) -> None:
    shutil.rmtree(begun / "checkpoints")
    notes = [str(e.note) for e in play(begun, experiment(**LARGE)) if e.kind == "note"]
    assert "0-AdaBest-seed0 has no checkpoint left; it runs again from the start" in notes
    assert_same(begun, large)


class Killed(BaseException):
    """What stands for the end of the process."""


def deadly(call: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    """A call of the system that the n-th time, and ever after, does nothing but raise."""

    def wrapped(path: Any, *given: Any, **named: Any) -> Any:
        if Path(path).name in (".pid", ".lock"):  # a process that ends gives up its locks
            return call(path, *given, **named)
        countdown[0] -= 1
        if countdown[0] < 0:
            raise Killed
        return call(path, *given, **named)

    return wrapped


def test_a_kill_before_any_write_leaves_a_run_that_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    tiny = experiment(algorithms=["adabest"], rounds=2)  # with a row that an extension removes
    larger = experiment(algorithms=["adabest", "AdaBest(mu=0.5)"], rounds=3)
    play(tmp_path / "tiny", tiny)
    play(tmp_path / "larger", larger)
    resumed: list[Experiment] = []
    for number in range(1000):
        folder = shutil.copytree(tmp_path / "tiny", tmp_path / str(number))
        countdown = [number]
        with monkeypatch.context() as patch:
            for name in ("replace", "unlink"):
                patch.setattr(os, name, deadly(getattr(os, name), countdown))
            try:
                play(folder, larger)
                break
            except Killed:
                assert verify(folder).problems == []
        resumed.append(stored_experiment(folder))
        assert not [e for e in play(folder) if e.kind == "note" and "complete" not in str(e.note)]
        assert_same(folder, tmp_path / ("tiny" if resumed[-1] == tiny else "larger"))
    assert resumed == [tiny] * 3 + [larger] * (len(resumed) - 3)
    assert len(resumed) > 15
    assert_same(folder, tmp_path / "larger")


def test_names_of_the_present_version_are_kept(begun: Path, large: Path) -> None:
    """Trials were called by labels that depended on the other algorithms."""
    for kind in ("models", "checkpoints"):
        for path in (begun / kind).glob("0-AdaBest-*"):
            path.rename(path.with_name(path.name.replace("AdaBest", "AdaBest_mu_0_02__beta_0_96")))
    (begun / "checksums.json").unlink()
    assert [event.kind for event in play(begun)] == ["note"]
    play(begun, experiment(**LARGE))
    assert rows(begun) == rows(large)
    names = {path.stem for path in (begun / "models").iterdir()}
    assert "0-AdaBest_mu_0_02__beta_0_96-seed0" in names
    assert "0-AdaBest-seed1" in names


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rounds": 3}, "its rounds is 4, not 3; a run can be extended by more rounds"),
        ({"seeds": (1, 0)}, r"its seeds is \[0\], not \[1, 0\]; .* seeds that come after its own"),
        ({"algorithms": ["fedavg", *SMALL["algorithms"]]}, "algorithms that come after its own"),
        ({"every": 2, "rounds": 5}, "its every is 3, not 2; choose another folder"),
        ({"dropout": 0.5}, r"its dropout is 0\.0, not 0\.5; choose another folder"),
    ],
)
def test_what_is_no_extension_is_refused(change: Any, says: str, small: Path) -> None:
    before = {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}
    with pytest.raises(UndriftError, match=says):
        play(small, experiment(**change))
    assert {path: path.read_bytes() for path in small.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "say what there shall be more of, such as --seeds 5"),
        ({"rounds": 3}, "--rounds 3: .* has 4 already, and can only have more"),
        ({"seeds": 0}, "--seeds 0: .* has 1 already"),
        ({"algorithms": ["adabezt"]}, "did you mean 'AdaBest'"),
    ],
)
def test_mistakes(options: Any, says: str, small: Path) -> None:
    with pytest.raises(UndriftError, match=says):
        extended(small, **options)


def test_what_there_is_already_is_not_counted_twice(small: Path, tmp_path: Path) -> None:
    assert extended(small, seeds=1, rounds=4, algorithms=["AdaBest()"]) == experiment()
    assert extended(small, seeds=3).seeds == (0, 1, 2)
    play(tmp_path, experiment(seeds=(0, 3), rounds=1, algorithms=["fedavg"]))
    assert extended(tmp_path, seeds=4).seeds == (0, 3, 1, 2)


def test_an_edited_run_is_not_extended(begun: Path) -> None:
    path = begun / "experiment.json"
    path.write_text(path.read_text().replace('"rounds": 4', '"rounds": 5'))
    with pytest.raises(UndriftError, match="was edited after the run began"):
        play(begun, experiment(rounds=7))


def test_forks_grow_by_rounds_and_algorithms(small: Path, tmp_path: Path) -> None:
    for name, rounds, algorithms in ("grown", 5, ["fedavg"]), ("at once", 7, ["fedavg", "fedprox"]):
        made = forked(small, algorithms, round=3, source="AdaBest", rounds=rounds)
        for _ in plant(made, tmp_path / name, small):
            pass
        play(tmp_path / name, made)
    grown = tmp_path / "grown"
    before = (grown / "experiment.json").read_bytes()
    with pytest.raises(UndriftError, match="no state to start from on seed 1; extend the run that"):
        play(grown, extended(grown, seeds=2))
    with pytest.raises(UndriftError, match="their states differ"):
        play(grown, extended(grown, algorithms=["scaffold"]))
    assert (grown / "experiment.json").read_bytes() == before
    play(grown, extended(grown, rounds=7, algorithms=["fedprox"]))
    assert_same(grown, tmp_path / "at once")


def test_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("undrift.report.write_report", lambda run: run.folder)
    same = ["--data", "synthetic", "--partition", "Natural()", "--model", "linear", "--steps", "1"]
    tail = [*same, "--engine", "sequential", "--out", str(tmp_path), "--json"]
    commands = [
        ["compare", "fedavg", "--rounds", "1", "--seeds", "1", *tail],
        ["compare", "fedavg", "fedprox", "--rounds", "1", "--seeds", "1", *tail],
        ["extend", str(tmp_path), "--rounds", "2", "--algorithm", "adabest", "--json"],
    ]
    began = []
    for command in commands:
        monkeypatch.setattr("sys.argv", ["undrift", *command])
        main(command)
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        began.append([(e["label"], e["round"]) for e in events if e["event"] == "begin"])
    assert began == [
        [("FedAvg", 0)],
        [("FedProx", 0)],
        [("FedAvg", 1), ("FedProx", 1), ("AdaBest", 0)],
    ]
    facts = json.loads((tmp_path / "experiment.json").read_text())
    assert facts["command"] == " && ".join(shlex.join(["undrift", *one]) for one in commands)
    sessions = json.loads((tmp_path / "environment.json").read_text())
    assert [session["hash"] for session in sessions][-1] == facts["hash"]
    assert len({session["hash"] for session in sessions}) == 3
