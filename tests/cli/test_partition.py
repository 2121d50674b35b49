"""`undrift partition show`: what is printed, saved and drawn."""

import json
from pathlib import Path
from typing import Any

import pytest

from undrift.cli.partition import partition_app
from undrift.config import UndriftError
from undrift.data.files.fetch import use_data_dir

SKEWED = "Dirichlet(clients=30, alpha=0.1)"


def show(*arguments: str) -> None:
    partition_app(["show", *arguments], exit_on_error=False, result_action="return_none")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    show(*arguments, "--json")
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def test_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    skewed = shown(capsys, "--partition", SKEWED)
    alike = shown(capsys, "--partition", "IID(clients=30, stratified=True)")
    assert skewed["clients"] == 30
    assert skewed["samples"] == 1437
    assert skewed["unused_samples"] == 1437 - 30 * 47
    assert skewed["clients_without_samples"] == 0
    assert skewed["sizes"] == {"min": 47, "median": 47, "mean": 47, "max": 47}
    assert skewed["classes"] == 10
    assert skewed["entropy"]["median"] < 2 < alike["entropy"]["min"]
    for distance in ("total_variation", "hellinger"):
        assert 0 <= alike[distance]["max"] < 0.2 < skewed[distance]["min"] <= 1
    assert shown(capsys, "--partition", SKEWED) == skewed
    assert shown(capsys, "--partition", SKEWED, "--seed", "1")["hash"] != skewed["hash"]


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    show("--partition", SKEWED)
    said = capsys.readouterr().out
    assert said.startswith(f"Digits(), {SKEWED}, seed 0\n30 clients with 1,410 of 1,437 samples;")
    assert "label entropy" in said


def test_a_saved_partition_shows_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = shown(capsys, "--partition", SKEWED, "--save", str(tmp_path))
    assert Path(first["saved"]).name == f"partition-{first['hash']}.safetensors"
    again = shown(capsys, "--partition", f"Saved({first['saved']!r})", "--seed", "5")
    same = ("hash", "clients", "sizes", "entropy", "hellinger")
    assert [again[key] for key in same] == [first[key] for key in same]


def test_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "picture.png"
    for clients in (30, 60):  # dots, and a heat map
        show("--partition", f"IID(clients={clients})", "--figure", str(path))
        assert f"figure: {path}" in capsys.readouterr().out
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


def test_clients_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{i / 4},H{i % 3 * i % 2}" for i in range(30)]
    Path("t.csv").write_text("\n".join(["x,y,who", *rows]), encoding="utf-8")
    table = ("--data", "t.csv", "--target-column", "y", "--client-column", "who")
    facts = shown(capsys, *table)
    assert facts["partition"] == "Natural()"
    assert facts["samples_of"] == {"H0": 20, "H1": 4}
    show(*table)
    assert "the smallest client is H1, the largest H0" in capsys.readouterr().out


def test_data_from_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stackoverflow").mkdir()
    sentences = [("a", "train"), ("b", "train"), ("c", "test")]
    lines = [{"client_id": who, "tokens": "how so", "split": part} for who, part in sentences]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "stackoverflow" / "stackoverflow.jsonl").write_text(text)
    where = ("--data-dir", str(tmp_path))
    try:
        facts = shown(capsys, "--data", "stackoverflow", *where, "--partition", "Natural()")
    finally:
        use_data_dir(None)
    assert facts["clients"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "digitz"], "did you mean 'digits'"),
        (["--partition", "Saved('nowhere')"], "there is no partition file 'nowhere'"),
        (["--partition", "Dirichlet(clients=5)"], "alpha"),
        (["--figure", "picture.bmp"], "must end in .png"),
        (["--figure", "no/such/folder/picture.png"], "No such file"),
        (["--save", "no/such/folder/file"], "cannot be written"),
        (["--seed", "-1"], "whole number >= 0"),
    ],
)
def test_mistakes(arguments: list[str], says: str) -> None:
    with pytest.raises(UndriftError, match=says):
        show(*arguments)
