"""`undrift new`: what it writes is right at once, and nothing is overwritten."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from undrift.cli.app import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_figures: None) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("half", "test_half", "server_noise", "test_server_noise"):
        sys.modules.pop(name, None)


def next_steps(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The commands that were printed, as words."""
    _, *lines = capsys.readouterr().out.splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def follow(words: list[str], *more: str) -> None:
    """Do as was told, in this process."""
    if words[0] == "undrift":
        main([*words[1:], *more])
    else:
        assert words[:3] == ["python", "-m", "pytest"]
        assert pytest.main(["-q", "-p", "no:cacheprovider", *words[3:]]) == 0


def test_a_new_algorithm_is_checked_tested_and_run_as_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["new", "algorithm", "Half"])
    assert sorted(path.name for path in home.iterdir()) == ["half.py", "half.toml", "test_half.py"]
    check, test, run = next_steps(capsys)
    assert check == ["undrift", "check", "./half.py:Half"]
    follow(check)
    follow(test)
    assert run == ["undrift", "run", "half.toml"]
    follow(run, "--set", "rounds=2", "--set", "seeds=[0]", "--out", "run")
    assert all(name in (home / "run/table.md").read_text() for name in ("Half", "AdaBest"))


def test_a_new_part_is_checked_tested_and_run_as_told(capsys: pytest.CaptureFixture[str]) -> None:
    main(["new", "part", "server_noise"])
    check, test, compare = next_steps(capsys)
    assert check == ["undrift", "check", "./server_noise.py:ServerNoise"]
    follow(test)
    follow(compare, "--dry-run")
    assert '"./server_noise.py:ServerNoise(AdaBest(' in capsys.readouterr().out


def test_a_new_model_data_set_and_sampler_run_as_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = []
    for kind in ("model", "data", "sampler"):
        main(["new", kind, f"My{kind}", "--into", "deep/down"])
        (_, folder), command = next_steps(capsys)
        assert command[:4] == ["undrift", "compare", "fedavg", "adabest"]
        flags += command[4:]
    monkeypatch.chdir(folder)
    main(["compare", "fedavg", *flags, "--rounds", "2", "--seeds", "1", "--out", "run"])
    assert "FedAvg" in (home / "deep/down/run/table.md").read_text()


def test_what_is_written_is_tidy() -> None:
    for kind in ("algorithm", "part", "model", "data", "sampler"):
        main(["new", kind, f"My{kind}"])
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", "."],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["half.py", "half.toml", "test_half.py"])
def test_no_file_is_overwritten(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / name).write_text("precious")
    with pytest.raises(SystemExit) as exit:
        main(["new", "algorithm", "Half"])
    assert exit.value.code == 2
    assert f"{name} exists already" in capsys.readouterr().err
    assert [path.read_text() for path in home.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("3x", "not a name for Python"),
        ("a/b", "not a name for Python"),
        ("random", "random.py would hide"),
        ("Torch", "torch.py would hide"),
        ("Class", "class.py would hide"),
    ],
)
def test_names_that_would_not_work(
    name: str, says: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["new", "model", name])
    assert says in capsys.readouterr().err
    assert not list(home.iterdir())
