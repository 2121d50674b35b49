"""Runs with users' own code: they go on like any other, with the same code, and never unasked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.runs.extend import extended
from undrift.runs.fork import forked, plant
from undrift.runs.identity import stored_experiment
from undrift.runs.layout import RunFile
from undrift.runs.runner import run

MINE = """
from dataclasses import dataclass

from undrift.core import Algorithm, real

with open("executed", "a") as file:
    file.write("x")

@dataclass(frozen=True)
class Half(Algorithm):
    rate: float = real(0.5, gt=0)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's file, a finished run of it, and a cache of its own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    (home / "mine.py").write_text(MINE, encoding="utf-8")
    for _ in go(experiment(), home / "run"):
        pass
    (home / "executed").unlink()
    return home


def experiment(text: str = "./mine.py:Half(rate=0.3)") -> Experiment:
    return Experiment(
        algorithms=[text],  # type: ignore[arg-type]
        data="synthetic",  # type: ignore[arg-type]
        partition="Natural()",  # type: ignore[arg-type]
        model="linear",  # type: ignore[arg-type]
        local="Local(lr=0.1, steps=1)",  # type: ignore[arg-type]
        sampler="Uniform(2)",  # type: ignore[arg-type]
        rounds=2,
        every=1,
    )


def go(made: Experiment, folder: Path):  # type: ignore[no-untyped-def]
    return run(made, folder, engine="sequential")


def forget(home: Path) -> None:
    """As on another machine."""
    shutil.rmtree(home.parent / "cache")


def test_a_run_goes_on_from_any_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent)
    again = stored_experiment(home / "run")
    assert repr(again.algorithms[0]) == "./mine.py:Half(rate=0.3)"
    assert [event.kind for event in go(again, home / "run")] == ["note"]


def test_code_that_the_user_never_ran_must_be_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(home)
    with pytest.raises(UndriftError, match=r"have not run on this machine.* --code "):
        stored_experiment(home / "run")
    (home / "elsewhere").mkdir()
    shutil.move(home / "mine.py", home / "elsewhere" / "mine.py")
    with pytest.raises(UndriftError, match=r"uses \./mine\.py, which is not there"):
        stored_experiment(home / "run")
    made = stored_experiment(home / "run", [Path("elsewhere/mine.py")])
    for _ in go(made, home / "run"):
        pass
    stored_experiment(home / "run", [Path("elsewhere/mine.py")])


def test_a_name_in_a_run_directory_is_not_executed(home: Path) -> None:
    """Neither code that lies in it, nor a module of Python that does harm."""
    path = home / "run" / RunFile.EXPERIMENT
    (home / "run" / "evil.py").write_text(MINE.replace("executed", "evil"), encoding="utf-8")
    for name in ("./run/evil.py:Half()", "os:abort()", "antigravity:x()"):
        found = json.loads(path.read_text(encoding="utf-8"))
        found["algorithms"][0]["name"] = name
        found["code"] = {name.partition(":")[0]: "0" * 64}
        path.write_text(json.dumps(found), encoding="utf-8")
        with pytest.raises(UndriftError, match=r"edited|not run on this machine"):
            stored_experiment(home / "run")
    assert not (home / "evil").exists()


def test_an_edited_file_is_refused(home: Path) -> None:
    with (home / "mine.py").open("a", encoding="utf-8") as file:
        file.write("# better\n")
    for attempt in (
        lambda: stored_experiment(home / "run"),
        lambda: list(go(experiment(), home / "run")),
    ):
        with pytest.raises(
            UndriftError, match=r"^\./mine\.py was edited after .*run began"
        ) as caught:
            attempt()
        assert "--out: finished trials stay in the old one" in str(caught.value)


BOOM = """
from dataclasses import dataclass

from undrift.core import Algorithm

@dataclass(frozen=True)
class Boom(Algorithm):
    def update(self, s, mean, round):
        if round.t == 2:
            check(round)
        return super().update(s, mean, round)

def check(round):
    raise KeyError("bad")

@dataclass(frozen=True)
class Early(Algorithm):
    def begin(self, down, me, client):
        return 1 / 0

@dataclass(frozen=True)
class Single(Algorithm):
    def update(self, s, mean, round):
        return mean.delta
"""


def test_errors_of_own_code_are_a_sentence_and_its_own_lines(home: Path) -> None:
    (home / "boom.py").write_text(BOOM, encoding="utf-8")
    for attempt in ("first", "resumed"):
        with pytest.raises(UndriftError) as caught:
            list(go(experiment("./boom.py:Boom"), home / "boom"))
        sentence, *lines = str(caught.value).splitlines()
        assert sentence == (
            "./boom.py, line 14, in check: KeyError: 'bad' (round 2 of Boom, seed 0)"
        ), attempt
        files = [line for line in lines if line.startswith("  File")]
        assert [line.split(", ", 1)[1] for line in files] == [
            "line 10, in update",
            "line 14, in check",
        ]
        assert all(str(home / "boom.py") in line for line in files)
        assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(UndriftError, match=r"^\./boom\.py, line 19, .*by zero \(Early, seed 0\)\n"):
        list(go(experiment("./boom.py:Early"), home / "early"))
    with pytest.raises(UndriftError) as caught:
        list(go(experiment("./boom.py:Single"), home / "single"))
    sentence, *lines = str(caught.value).splitlines()
    assert sentence.startswith(
        "./boom.py:Single() returned what does not fit: ValueError: too many"
    )
    assert "(round 1 of Single, seed 0); `undrift check './boom.py:Single()'`" in sentence
    assert ".update(" in lines[1]


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, UndriftError])
def test_other_errors_pass_own_code_as_they_are(home: Path, error: type[BaseException]) -> None:
    text = BOOM.replace("1 / 0", f"oh()\n\ndef oh():\n    raise {error.__name__}('oh')").replace(
        "import Algorithm", "import Algorithm, UndriftError"
    )
    (home / "boom.py").write_text(text, encoding="utf-8")
    with pytest.raises(error) as caught:
        list(go(experiment("./boom.py:Early"), home / "early"))
    assert str(caught.value) == "oh"


def test_a_fork_takes_own_code_along(home: Path) -> None:
    made = forked(home / "run", ["fedavg"], round=1)
    assert set(made.resolved()["code"]) == {"./mine.py"}
    for _ in plant(made, home / "fork", home / "run"):
        pass
    forget(home)
    with pytest.raises(UndriftError, match="not run on this machine"):
        stored_experiment(home / "fork")
    for _ in go(stored_experiment(home / "fork", [home / "mine.py"]), home / "fork"):
        pass


def test_a_run_is_extended_with_own_code(home: Path) -> None:
    (home / "more.py").write_text(MINE, encoding="utf-8")
    forget(home)
    added = ["./mine.py:Half(rate=0.1)", "./more.py:Half()"]
    with pytest.raises(UndriftError, match="not run on this machine"):
        extended(home / "run", algorithms=added)
    made = extended(home / "run", algorithms=added, code=[home / "mine.py"])
    began = [event.algorithm for event in go(made, home / "run") if event.kind == "begin"]
    assert began == ["./mine.py:Half(rate=0.1)", "./more.py:Half(rate=0.5)"]
    assert stored_experiment(home / "run").resolved()["code"].keys() == {"./mine.py", "./more.py"}
    (home / "mine.py").write_text(MINE + "# edited", encoding="utf-8")
    with pytest.raises(UndriftError, match=r"^\./mine\.py was edited after .*run began"):
        extended(home / "run", rounds=3)


def test_a_fork_with_own_code_is_extended(home: Path) -> None:
    made = forked(home / "run", ["fedavg"], round=1)
    for _ in plant(made, home / "fork", home / "run"):
        pass
    forget(home)
    larger = extended(home / "fork", algorithms=["fedprox"], code=[home / "mine.py"])
    began = [event.label for event in go(larger, home / "fork") if event.kind == "begin"]
    assert began == ["FedAvg", "FedProx"]
