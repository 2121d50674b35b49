"""`undrift check`: an algorithm, law by law."""

import json
from pathlib import Path

import pytest

from undrift.checks.laws import LAWS
from undrift.cli.app import main

MINE = """
from dataclasses import dataclass

from undrift.core import Algorithm, Part, Struct, real


@dataclass(frozen=True)
class Half(Algorithm):
    rate: float = real(0.5, gt=0)


@dataclass(frozen=True)
class Around(Part):
    pass


@dataclass(frozen=True)
class Typo(Algorithm):
    def update(self, s, mean, round):
        return mean.dleta, Struct()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("./mine.py:Half(rate=0.3)", "./mine.py:Half(rate=0.3)"),
        ("./mine.py:Around", "./mine.py:Around(FedAvg())"),
    ],
)
def test_every_law_is_printed_with_what_it_says(
    text: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", text])
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head == f"{name}, law by law:"
    assert lines == [f"{'holds':<8}{law:<13}{LAWS[law].__doc__}" for law in LAWS]
    assert last == f"all {len(LAWS)} laws hold"


def test_a_broken_law_is_told_with_the_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["check", "./mine.py:Typo"])
    _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert exit.value.code == 1
    line = MINE.splitlines().index("        return mean.dleta, Struct()") + 1
    assert first.startswith("broken  structure")
    assert f"AttributeError in line {line} of mine.py: no field 'dleta'" in first
    assert second.startswith("broken  purity")
    assert second.endswith("As above.")


def test_json_has_every_law_and_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["check", "./mine.py:Typo", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert exit.value.code == 1
    assert shown["algorithm"] == "./mine.py:Typo()"
    assert [one["law"] for one in shown["laws"]] == list(LAWS)
    assert all("dleta" in one["failure"] for one in shown["laws"])
