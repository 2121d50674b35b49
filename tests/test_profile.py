"""`undrift profile` accounts for the time of a round."""

import json
from pathlib import Path

import pytest

from undrift.cli import main
from undrift.commands.profile import OTHER, _caller_place
from undrift.engines.native import launch
from undrift.engines.native.launch import LaunchQueue

DEMO = str(Path(__file__).parent.parent / "examples" / "demo.toml")


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


def test_time_in_the_library_is_that_of_who_calls_it() -> None:
    """Torch's own Python stands between the library and our code."""
    run = (launch.__file__, LaunchQueue.run.__code__.co_firstlineno, LaunchQueue.run.__name__)
    through, alone = ("torch/_ops.py", 1, "__call__"), ("torch/_ops.py", 2, "__call__")
    functions = {through: (1, 1, 0.0, 1.0, {run: (1, 1, 0.0, 1.0)}), alone: (1, 1, 0.0, 1.0, {})}
    assert _caller_place(functions, through) == "local steps"
    assert _caller_place(functions, alone) == OTHER
