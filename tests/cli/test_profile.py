"""`undrift profile` accounts for the time of a round."""

import json
import pstats
from pathlib import Path
from typing import Any

import pytest

from undrift.cli.app import main
from undrift.cli.profile import OTHER, PLACES, Alone, measured, shares
from undrift.experiment.experiment import Experiment

PACKAGE = Path(measured.__code__.co_filename).parent.parent
DEMO = str(Path(__file__).parents[2] / "examples" / "demo.toml")


def test_profile_accounts_for_all_time(capsys: pytest.CaptureFixture[str]) -> None:
    main(["profile", DEMO, "--rounds", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["algorithm"] == "FedAvg()"
    assert 0.5 < sum(found["places"].values()) / found["seconds"] < 1.1  # the rest is the profiler
    assert found["places"]["local steps"] > 0
    assert "addmm" in found["operators"]


def test_profile_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main(["profile", DEMO, "--rounds", "1"])
    shown = capsys.readouterr().out
    for part in ("a round of FedAvg()", "local steps", "averaging", "by operator"):
        assert part in shown


@pytest.mark.parametrize(
    ("reasons", "work"), [({}, "torch._ops.undrift"), ({None: "as asked"}, "run_backward")]
)
def test_steps_are_booked_as_local_steps(reasons: dict[Any, str], work: str) -> None:
    """Where they are compiled and where they are not, however deep in torch they are."""
    experiment = Experiment.from_toml(DEMO)
    task, data = experiment.check()
    engine = Alone(task)
    engine.trainer.reasons |= reasons
    profiler, _ = measured(experiment, task, data, engine, rounds=2)
    stats: Any = pstats.Stats(profiler)
    places = shares(stats.stats)
    found = [function for function in places if work in function[2]]
    assert found
    assert [places[function] for function in found] == [{"local steps": 1.0}] * len(found)
    calls = {function: row[1] for function, row in stats.stats.items()}
    lost = sum(calls[function] for function, place in places.items() if OTHER in place)
    assert lost < 0.01 * sum(calls.values())


def test_time_goes_to_callers_in_proportion() -> None:
    """Over any number of calls, of which some are to the function itself."""
    steps = f"{PACKAGE}/training/trainer.py", 1, "walk"
    server = f"{PACKAGE}/federation/rounds.py", 1, "play"
    outer, inner = ("torch.py", 1, "outer"), ("~", 0, "inner")
    calls = {
        steps: {},
        server: {},
        outer: {steps: (1, 1, 0.0, 3.0), server: (1, 1, 0.0, 1.0), inner: (1, 1, 0.0, 9.0)},
        inner: {outer: (1, 1, 4.0, 4.0)},
        ("alone.py", 1, "alone"): {},
    }
    found = shares({name: (1, 1, 1.0, 1.0, callers) for name, callers in calls.items()})
    assert found[outer] == found[inner] == {"local steps": 0.75, "the server": 0.25}
    assert found["alone.py", 1, "alone"] == {OTHER: 1.0}


@pytest.mark.parametrize("place", PLACES)
def test_places_are_files_and_functions_that_exist(place: str) -> None:
    file, _, function = place.partition(":")
    path = next(PACKAGE.parent.rglob(file.rstrip("/")))
    assert path.is_dir() == file.endswith("/")
    assert f"def {function}" in (path.read_text(encoding="utf-8") if function else "def ")
