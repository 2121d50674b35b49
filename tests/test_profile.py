"""`undrift profile` accounts for the time of a round."""

import json
from pathlib import Path

import pytest

from undrift.cli import main

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
