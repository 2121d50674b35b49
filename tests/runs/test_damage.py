"""Damage to a run: it is noticed, told, and mended where that can be done."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import undrift
from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.runs.checksums import Checksums
from undrift.runs.identity import last_data_dir, stored_experiment
from undrift.runs.runner import Event, run
from undrift.runs.verify import verify
from undrift.system.lock import Lock

MODEL = "models/0-AdaBest-seed0.safetensors"
ROUND = "checkpoints/0-AdaBest-seed0/round-000006.safetensors"


def play(folder: Path, last: int = 7) -> list[Event]:
    """Run what is left, up to the end of a round."""
    made = Experiment(
        algorithms=("adabest", "fedadam(lr=1e38)"),
        data="digits",
        partition="Dirichlet(clients=20, alpha=0.3)",
        model="Linear()",
        local="Local(lr=0.1, steps=2, batch_size=8)",
        sampler="Uniform(clients=4)",
        rounds=6,
        every=2,
    )
    happening, events = run(made, folder, engine="sequential", save_every=0.0), []
    for event in happening:
        events.append(event)
        if event.kind == "round" and event.round == last:
            break
    happening.close()
    return events


def notes(events: list[Event]) -> str:
    return "\n".join(str(event.note) for event in events if event.kind == "note")


def results(folder: Path) -> tuple[list[Any], bytes, Any]:
    """Rows, in whatever order and without the clock, the model and the failures."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    rows.sort(key=lambda row: (row["algorithm"], row["round"]))
    return rows, (folder / MODEL).read_bytes(), json.loads((folder / "failures.json").read_text())


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that is done, and one that is not."""
    folder = tmp_path_factory.mktemp("kept")
    play(folder / "whole")
    play(folder / "half", last=5)
    yield folder
    for name in ("whole", "half"):
        assert verify(folder / name).problems == []


@pytest.fixture
def whole(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept / "whole", tmp_path / "whole"))


@pytest.fixture
def half(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept / "half", tmp_path / "half"))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "model flipped": (MODEL, lambda path: flip(path, -1), "its checksum is wrong"),
    "model emptied": (MODEL, lambda path: path.write_bytes(b""), "its checksum is wrong"),
    "model cut": (MODEL, lambda path: os.truncate(path, 900), "its checksum is wrong"),
    "a digit of a row": (
        "metrics.jsonl",
        lambda path: edit(path, '"accuracy": 0.', '"accuracy": 0.0'),
        "rows of AdaBest(mu=0.02, beta=0.96), seed 0",
    ),
    "a row lost": (
        "metrics.jsonl",
        lambda path: path.write_text("".join(path.read_text().splitlines(True)[1:])),
        "rows of AdaBest(mu=0.02, beta=0.96), seed 0",
    ),
    "the row of a failure lost": (
        "metrics.jsonl",
        lambda path: path.write_text("".join(path.read_text().splitlines(True)[:-1])),
        "rows of ServerOpt(FedAvg(), Adam(lr=1e+38)), seed 0",
    ),
    "a round of a failure": (
        "failures.json",
        lambda path: edit(path, '"round": 2', '"round": 3'),
        "its checksum is wrong",
    ),
    "failures emptied": ("failures.json", lambda path: path.write_text("[]"), "is missing"),
    "no failures": ("failures.json", lambda path: path.write_text("7"), "is not a list"),
    "half a failure": (
        "failures.json",
        lambda path: edit(path, '"seed"', '"sead"'),
        "is not a failure of this run",
    ),
    "failures torn": ("failures.json", lambda path: path.write_text("[{"), "cannot be read"),
    "sums flipped": ("checksums.json", lambda path: flip(path, 200), "is damaged"),
    "sums of another kind": ("checksums.json", lambda path: path.write_text("[]"), "is damaged"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_to_what_is_done_is_found_and_mended(case: str, kept: Path, whole: Path) -> None:
    name, damage, says = DAMAGES[case]
    damage(whole / name)
    problems = verify(whole).problems
    assert {problem.file for problem in problems} == {name}
    assert says in problems[0].problem
    assert "`undrift resume`" in problems[0].mend
    told = notes(play(whole))
    assert name.split("/")[-1] in told
    assert results(whole) == results(kept / "whole")
    assert verify(whole).problems == []
    assert notes(play(whole)) == f"{whole} is complete; there is nothing left to run"


def test_a_model_is_made_again_from_the_last_checkpoint(whole: Path) -> None:
    flip(whole / MODEL, -1)
    events = play(whole)
    assert [event.round for event in events if event.kind == "begin"] == [6]
    assert f"{whole / MODEL} is damaged: its checksum is wrong; it is computed again" in notes(
        events
    )


def test_a_damaged_model_is_never_left_without_its_checksum(
    kept: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(whole / MODEL, -1)
    unlink = Path.unlink

    def crash(path: Path, missing_ok: bool = False) -> None:
        if path == whole / MODEL:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            play(whole)
    assert [problem.file for problem in verify(whole).problems] == [MODEL]
    play(whole)
    assert results(whole) == results(kept / "whole")


def test_rows_of_a_failure_without_checksums_are_measured_again(kept: Path, whole: Path) -> None:
    (whole / "checksums.json").unlink()
    lines = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    (whole / "metrics.jsonl").write_text("".join(lines[:-1]))
    assert "was done, but some of its rows are missing" in notes(play(whole))
    assert results(whole) == results(kept / "whole")


def test_checksums_do_not_lead_out_of_the_run(whole: Path) -> None:
    sums = Checksums(whole)
    sums.files["../x"] = sums.files[MODEL]
    sums.write()
    assert "outside of the run" in verify(whole).problems[0].problem


def test_runs_without_checksums_get_them(kept: Path, whole: Path) -> None:
    (whole / "checksums.json").unlink()
    assert verify(whole).unsummed
    play(whole)
    before, after = (
        json.loads((at / "checksums.json").read_text()) for at in (kept / "whole", whole)
    )
    assert before["files"].keys() == after["files"].keys()
    assert len(after["trials"]) == 2
    (whole / "checksums.json").unlink()
    os.truncate(whole / MODEL, 900)
    assert "is not a complete safetensors file" in verify(whole).problems[0].problem
    assert "it is computed again" in notes(play(whole))
    assert results(whole) == results(kept / "whole")


HOLES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda rows: rows[:-40] + bytes(39) + b"\n" + rows,
    "torn": lambda rows: rows + rows[:50] + rows,
    "a word": lambda rows: rows + b"what is this\n",
    "a text for a round": lambda rows: rows + rows.replace(b'"round": 2', b'"round": "4"'),
    "a text for a loss": lambda rows: rows + re.sub(rb'"loss": [^,]+', b'"loss": "low"', rows),
    "a list for a seed": lambda rows: rows + rows.replace(b'"seed": 0', b'"seed": [1]'),
    "another algorithm": lambda rows: rows + rows.replace(b"AdaBest(", b"AdaBust("),
}


@pytest.mark.parametrize("case", HOLES)
def test_lines_that_are_no_rows_are_taken_out(case: str, kept: Path, half: Path) -> None:
    path = half / "metrics.jsonl"
    damaged = HOLES[case](path.read_bytes().splitlines(keepends=True)[0])
    path.write_bytes(damaged)
    assert "is not a row of this run" in verify(half).problems[0].problem
    told = notes(play(half))
    assert ", not a row of this run" in told
    assert ", not a row of this run" in (half / "run.log").read_text()
    assert (half / "metrics.jsonl.unused").read_bytes() == damaged
    assert results(half) == results(kept / "whole")


def test_what_was_not_yet_safe_may_be_torn(kept: Path, half: Path) -> None:
    for path in (half / "checkpoints").glob("*/round-000005*"):
        path.unlink()
    (half / "checksums.json").unlink()
    with (half / "metrics.jsonl").open("ab") as file:
        file.write(bytes(300) + b"\n" + b'{"algorithm": "Ada')
    events = play(half)
    assert [event.round for event in events if event.kind == "begin"] == [4, 0]
    assert results(half) == results(kept / "whole")


@pytest.mark.parametrize("text", ["7", "[7]", "[{}]", '[{"rounding": [1]}]', "{", "[" * 100_000])
def test_what_sessions_ran_on_must_be_told(text: str, half: Path) -> None:
    (half / "environment.json").write_text(text)
    assert last_data_dir(half) is None
    assert verify(half).problems[0].file == "environment.json"
    with pytest.raises(UndriftError, match=r"environment\.json is damaged .* or remove it"):
        play(half)


def test_where_data_were_must_be_a_text(half: Path) -> None:
    (half / "environment.json").write_text('[{"rounding": "python", "data_dir": 7}]')
    assert last_data_dir(half) is None


@pytest.mark.parametrize(
    "name",
    [
        *("experiment.json", "experiment.toml", "partition.json", "failures.json"),
        *(
            "environment.json",
            "metrics.jsonl",
            "checksums.json",
            "run.log",
            ROUND[:-13] + "5.safetensors",
        ),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_told(name: str, half: Path) -> None:
    (half / name).unlink()
    (half / name).mkdir()
    if name == "experiment.toml":  # which only `undrift resume` looks at
        with pytest.raises(UndriftError, match=name):
            stored_experiment(half)
        (half / "checksums.json").unlink()  # so that its sum is taken
    with pytest.raises(UndriftError, match=name.split("/")[-1]):
        play(half)


def test_settings_that_are_no_algorithms_are_told(half: Path) -> None:
    facts = json.loads((half / "experiment.json").read_text())
    (half / "experiment.json").write_text(json.dumps(facts | {"algorithms": [7]}))
    with pytest.raises(UndriftError, match="an algorithm must be an object with a name"):
        stored_experiment(half)


def test_settings_that_are_missing_are_told(half: Path) -> None:
    edit(half / "experiment.json", '"sampler"', '"samples"')
    with pytest.raises(UndriftError, match=r"experiment\.json lacks sampler; restore the file"):
        stored_experiment(half)


@pytest.mark.parametrize("name", [ROUND, "checksums.json", "failures.json"])
def test_nested_nonsense_is_damage(name: str, whole: Path) -> None:
    size = (50_000).to_bytes(8, "little") if name == ROUND else b""
    (whole / name).write_bytes(size + b"[" * 50_000)
    assert {problem.file for problem in verify(whole).problems} == {name}


def test_a_damaged_checkpoint_or_memory_is_found(half: Path, whole: Path) -> None:
    flip(whole / ROUND, -1)
    assert [problem.file for problem in verify(whole).problems] == [ROUND]
    (slab,) = half.glob("checkpoints/*/clients/h.slab")
    slab.write_bytes(bytes(slab.stat().st_size))
    problems = verify(half).problems
    assert len(problems) == 2
    assert all("needs the record of client" in problem.problem for problem in problems)
    slab.unlink()
    assert "No such file" in verify(half).problems[0].problem


def test_edited_settings_are_found(half: Path) -> None:
    edit(half / "experiment.json", '"every": 2', '"every": 3')
    wrong = [problem.problem for problem in verify(half).problems]
    assert wrong == ["its settings do not match its hash", "is damaged: its checksum is wrong"]


Shown = pytest.CaptureFixture[str]


def test_the_command(kept: Path, whole: Path, capsys: Shown) -> None:
    main(["verify", str(kept / "whole"), str(kept / "half")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("whole: sound (1 models, 4 rows, 1 failures, 2 checkpoints)")
    assert lines[1].endswith("half: sound (2 rows, 0 failures, 2 checkpoints)")
    flip(whole / MODEL, -1)
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(kept / "whole"), str(whole), str(whole / "models")])
    assert stopped.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        f"{whole / MODEL}: is damaged: its checksum is wrong; `undrift resume` computes it again "
        "from the last checkpoint"
    )
    assert "is not a run directory" in lines[2]
    with pytest.raises(SystemExit) as stopped:
        main(["verify", "--json", str(whole)])
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["state"], told["problems"][0]["file"]) == ("damaged", MODEL)
    lock = Lock(whole)
    main(["verify", str(whole)])
    assert f"process {os.getpid()} is running it" in capsys.readouterr().out
    lock.close()
    with pytest.raises(SystemExit):
        main(["verify"])


WITHOUT_INIT = """
import sys, types
package = types.ModuleType("undrift")
package.__path__, package.__version__ = [sys.argv[1]], ""
sys.modules["undrift"] = package
import undrift.cli.verify
sys.exit("torch" in sys.modules)
"""


def test_looking_needs_no_torch() -> None:
    package = str(Path(undrift.__file__).parent)
    assert (
        subprocess.run([sys.executable, "-c", WITHOUT_INIT, package], check=False).returncode == 0
    )
