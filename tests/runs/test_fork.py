"""Forks: a run that starts from another one's state."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from safetensors.torch import load_file

from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.engines import Engine, Sequential
from undrift.experiment.experiment import Experiment
from undrift.runs.fork import forked, plant
from undrift.runs.identity import stored_experiment
from undrift.runs.layout import origin_file
from undrift.runs.runner import run


def play(experiment: Experiment, folder: Path) -> None:
    for _ in run(experiment, folder):
        pass


def fork(other: Path, folder: Path, *algorithms: str, **options: Any) -> Experiment:
    made = forked(other, algorithms, **options)
    for _ in plant(made, folder, other):
        pass
    play(made, folder)
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts: dict[str, Any] = {
        "algorithms": ["AdaBest()", "fedavg"],
        "data": "digits",
        "partition": "Dirichlet(clients=20, alpha=0.3)",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=2, batch_size=8)",
        "sampler": "AdaFL(clients=4)",
    }
    folder = tmp_path_factory.mktemp("source")
    made = Experiment(**texts, rounds=10, every=2, seeds=(0, 3), dropout=0.2, all_clients=True)
    play(made, folder)
    return folder


def results(folder: Path, label: str, after: int) -> tuple[list[Any], list[bytes]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    models = sorted((folder / "models").glob(f"*-{label}-*"))
    kept = [row for row in rows if row["label"] == label and row["round"] > after]
    return kept, [model.read_bytes() for model in models]


@pytest.mark.parametrize("round", [5, 9])
def test_a_fork_of_the_same_algorithm_is_the_rest_of_the_run(
    round: int, source: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in source.rglob("*.slab")}
    fork(source, tmp_path, "AdaBest()", round=round, source="AdaBest")
    assert results(tmp_path, "AdaBest", round) == results(source, "AdaBest", round)
    assert {path: path.read_bytes() for path in source.rglob("*.slab")} == before


def test_a_fork_of_a_fork_starts_where_that_one_was(source: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    fork(source, first, "fedavg", round=4, source="AdaBest")
    rmtree(first / "checkpoints")
    fork(first, second, "fedavg", round=7)
    assert results(second, "FedAvg", 7) == results(first, "FedAvg", 7)
    with pytest.raises(UndriftError, match="has the rounds 4 to 10"):
        forked(first, ["fedavg"], round=3)


def test_states_are_computed_with_the_engine_of_the_run_they_come_from(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(source, tmp_path / "copy")
    asked = []

    def make(name: str) -> Engine:
        asked.append(name)
        return Sequential()

    monkeypatch.setattr("undrift.runs.fork.make_engine", make)
    for kind in ("python", "compiled"):
        sessions = json.dumps([{"rounding": kind}])
        (tmp_path / "copy" / "environment.json").write_text(sessions)
        made = forked(tmp_path / "copy", ["AdaBest()"], round=5, source="AdaBest")
        next(plant(made, tmp_path / kind, tmp_path / "copy"))
    assert asked == ["threads", "compiled"]


def test_an_algorithm_without_memory_goes_on_with_the_deployed_model(
    source: Path, tmp_path: Path
) -> None:
    algorithms = ("fedavg", "ServerOpt(fedavg, SGD(lr=1e-30))")
    made = fork(source, tmp_path, *algorithms, round=10, source="AdaBest", rounds=12)
    assert made.hash != stored_experiment(source).hash
    (model,) = (tmp_path / "models").glob("1-*-seed0.safetensors")
    still = load_file(model)
    before = load_file(source / "models" / "0-AdaBest-seed0.safetensors")
    assert all(still[name].equal(before[name]) for name in before)


def test_memories_that_differ_are_refused_unless_they_begin_anew(
    source: Path, tmp_path: Path
) -> None:
    made = forked(source, ["scaffold"], round=5, source="AdaBest")
    with pytest.raises(UndriftError, match=r"their states differ in .*--fresh"):
        next(plant(made, tmp_path / "run", source))
    assert not (tmp_path / "run").exists()
    made = fork(source, tmp_path, "scaffold", round=5, source="AdaBest", fresh=True)
    assert Experiment.from_toml(tmp_path / "experiment.toml") == made
    assert stored_experiment(tmp_path) == made
    play(made, tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"round": 11, "source": "AdaBest"}, "has the rounds 1 to 10"),
        ({"round": 5}, "say which with --source: AdaBest, FedAvg"),
        ({"round": 5, "source": "AdaBst"}, "did you mean 'AdaBest'"),
        ({"round": 5, "source": "AdaBest", "rounds": 5}, "must be more than 5"),
    ],
)
def test_mistakes(options: dict[str, Any], says: str, source: Path) -> None:
    with pytest.raises(UndriftError, match=says):
        forked(source, ["AdaBest()"], **options)


def test_a_fork_whose_origin_is_gone_says_so(source: Path, tmp_path: Path) -> None:
    made = replace(forked(source, ["fedavg"], round=5, source="FedAvg"), seeds=(0,))
    with pytest.raises(UndriftError, match="undrift fork"):
        play(made, tmp_path)
    assert not origin_file(tmp_path, 0).exists()


@pytest.mark.usefixtures("without_figures")
def test_the_command(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--at", "8", "--algorithm", "fedavg", "fedprox", "--source", "fedavg"]
    main(["fork", str(source), *arguments, "--json", "--out", str(tmp_path)])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["round"] for event in events if event["event"] == "begin"] == [8] * 4


def test_without_a_terminal_there_is_no_bar(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("undrift.cli.fork.go", lambda *experiment: None)
    arguments = ["--at", "8", "--algorithm", "fedavg", "--source", "fedavg", "--out", str(tmp_path)]
    main(["fork", str(source), *arguments])
    assert capsys.readouterr() == ("", "")
