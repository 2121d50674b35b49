"""Sweeps: every combination, resumed, with the knob on the x-axis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tune.studies import OPTIONS, experiment, rows
from tests.tune.test_tuning import QUICK
from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.tune.sweep import points, sweep

OVER = {"AdaBest.beta": [0.2, 0.6], "local.lr": "0.1, 0.2"}


def test_a_sweep_stopped_at_any_point_goes_on(tmp_path: Path) -> None:
    made = experiment("adabest", seeds=(0, 1))
    list(sweep(made, OVER, tmp_path / "whole", **OPTIONS))
    for stop in (2, 9):
        happening = sweep(made, OVER, tmp_path / "torn", **OPTIONS)
        for _ in range(stop):
            next(happening)
        happening.close()
    ended = [one for one in sweep(made, OVER, tmp_path / "torn", **OPTIONS) if one.kind == "point"]
    assert [one.point.settings for one in ended] == [
        {"local.lr": lr, "AdaBest.beta": beta} for lr in (0.1, 0.2) for beta in (0.2, 0.6)
    ]
    for name in ("ledger.jsonl", "table.md", "table.tex", "report.html"):
        assert (tmp_path / "torn" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for one in ended:
        run = Path("trials") / one.point.name
        assert rows(tmp_path / "torn" / run) == rows(tmp_path / "whole" / run)
    page = (tmp_path / "whole" / "report.html").read_text()
    assert page.count("<svg") == 2


def test_what_a_sweep_takes() -> None:
    made = experiment("fedavg", "adabest")
    names = [one.name for one in points(made, {"AdaBest.beta": "0.2, 0.6"})]
    assert names == ["FedAvg-0000", "AdaBest-0000", "AdaBest-0001"]
    for over, why in (
        ({}, "say what to vary"),
        ({"local.lr": "log(0.1, 1)"}, "a sweep takes values"),
        ({"AdaBest.bete": "1"}, "did you mean 'AdaBest.beta'"),
    ):
        with pytest.raises(UndriftError, match=why):
            points(made, over)


def test_a_sweep_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*QUICK, "--seeds", "1", "--out", str(tmp_path)]
    main(["sweep", "fedavg", "--over", "local.lr=0.1,0.2", *flags])
    first = capsys.readouterr().out
    assert "FedAvg-0001: 0." in first
    main(["resume", str(tmp_path)])
    assert capsys.readouterr().out == first
    with pytest.raises(SystemExit):
        main(["tune", "fedavg", *flags])
    assert "is from undrift sweep" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["tune", "sweep"])
def test_tracking_is_refused_before_anything_runs(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--over", "local.lr=0.1,0.2", "--validation", "1", "--track", "tensorboard"]
    with pytest.raises(SystemExit):
        main([command, "fedavg", *flags, "--out", str(tmp_path / "s")])
    assert "--track tensorboard: studies and sweeps are not tracked" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
