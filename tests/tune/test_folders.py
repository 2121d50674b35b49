"""Folders of studies and sweeps under the commands for runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tune.studies import play, study
from undrift.cli.app import main
from undrift.report.watch.folder import Folder
from undrift.runs.layout import study_runs
from undrift.system.lock import Lock


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs")
    play(study("fedavg", trials=2, final_seeds=1), made / "a")
    return made


def test_ls_and_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ls", str(folder), "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["state"], row["kind"]) == ("a", "finished", "study")
    assert row["trials"] == len(study_runs(folder / "a")) >= 3
    main(["ls", str(folder)])
    assert "study: FedAvg() on Synthetic" in capsys.readouterr().out
    main(["ls", str(folder / "a"), "--json"])
    names = {one["name"] for one in json.loads(capsys.readouterr().out)}
    assert {"FedAvg-0000", "FedAvg-0001"} < names
    main(["show", str(folder / "a")])
    out = capsys.readouterr().out
    assert "Best settings" in out
    assert "best settings: undrift run" in " ".join(out.split())
    assert "one line for each trial" in out


def test_verify_and_prune(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", str(folder / "a")])
    assert capsys.readouterr().out.count(": sound (") == len(study_runs(folder / "a"))
    main(["prune", str(folder / "a"), "--all", "--dry-run"])
    assert "would be freed" in capsys.readouterr().out


def test_watch_shows_the_runs_of_a_study(folder: Path) -> None:
    names = {entry.name for entry in Folder(folder / "a").entries()}
    assert names == {run.name for run in study_runs(folder / "a")}


def test_a_study_is_no_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", str(folder / "a")])
    assert "is a study or sweep, not a run: its page is report.html" in capsys.readouterr().err


def test_rm_removes_a_study_that_nobody_is_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "a"
    play(study("fedavg", trials=1), made)
    (made / "mine.txt").write_text("")
    with pytest.raises(SystemExit):
        main(["rm", str(made), "--yes"])
    assert "mine.txt" in capsys.readouterr().err
    (made / "mine.txt").unlink()
    claim = Lock(study_runs(made)[0])
    with pytest.raises(SystemExit):
        main(["rm", str(made), "--yes"])
    claim.close()
    main(["rm", str(made), "--yes"])
    assert not made.exists()
