"""Runs in a folder: going on, falling back, and refusing what would spoil results."""

from __future__ import annotations

import errno
import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from undrift.config import UndriftError
from undrift.data.federated import FederatedData
from undrift.experiment.experiment import Experiment
from undrift.federation.server import Server
from undrift.measure.metrics import Meter
from undrift.report import read_run
from undrift.runs.folder import SHORTENED, RunFolder, trial_name
from undrift.runs.identity import stored_experiment
from undrift.runs.rows import MetricsFile
from undrift.runs.runner import Event, run
from undrift.runs.verify import verify
from undrift.system.files import replace_file, writing
from undrift.system.lock import Lock


def experiment(**options: Any) -> Experiment:
    texts: dict[str, Any] = {
        "algorithms": ["adabest", "FedGLAD(fedavg)"],
        "data": "digits",
        "partition": "Dirichlet(clients=20, alpha=0.3)",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=2, batch_size=8)",
        "sampler": "Uniform(clients=4)",
        "rounds": 10,
        "every": 3,
    }
    return Experiment(**texts | options)


def play(folder: Path, made: Experiment | None = None, **options: Any) -> list[Event]:
    where: dict[str, Any] = {"engine": "sequential", "save_every": 1e9}
    return list(run(made or experiment(), folder, **where | options))


def stop_after(folder: Path, events: int) -> None:
    """Leave the loop after some events other than notes, as Ctrl-C in its body would."""
    happening = run(experiment(), folder, engine="sequential", save_every=1e9)
    for _ in islice((event for event in happening if event.kind != "note"), events):
        pass
    happening.close()


def results(folder: Path) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """The rows, without the clock, and the bytes of the final models."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    return rows, {path.name: path.read_bytes() for path in (folder / "models").iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    play(folder)
    return folder


@settings(max_examples=8, deadline=None)
@given(stops=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_a_run_can_be_left_and_gone_on_with_anywhere(
    stops: list[int], whole: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("left")
    for events in stops:
        stop_after(folder, events)
    play(folder)
    assert results(folder) == results(whole)


def test_what_is_done_is_not_done_again(whole: Path) -> None:
    before = results(whole)
    assert [event.kind for event in play(whole)] == ["note"]
    assert results(whole) == before


@pytest.fixture
def done(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "done")


def test_another_target_trains_nothing_again(whole: Path, done: Path) -> None:
    assert [event.kind for event in play(done, experiment(target=0.4))] == ["note"]
    assert results(done) == results(whole)
    assert read_run(done).target == 0.4
    assert stored_experiment(done) == experiment(target=0.4)
    assert Experiment.from_toml(done / "experiment.toml") == experiment(target=0.4)
    assert verify(done).problems == []


@pytest.mark.parametrize("file", ["experiment.json", "experiment.toml"])
def test_a_crash_while_the_target_is_changed_is_no_damage(
    file: str, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(path: Path, content: bytes) -> None:
        if path.name == file:
            raise KeyboardInterrupt
        replace_file(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("undrift.runs.folder.replace_file", crash)
        with pytest.raises(KeyboardInterrupt):
            play(done, experiment(target=0.4))
    assert verify(done).problems == []
    play(done, experiment(target=0.4))
    assert verify(done).problems == []
    assert Experiment.from_toml(done / "experiment.toml").target == read_run(done).target == 0.4


def test_leaving_saves_the_last_round(tmp_path: Path) -> None:
    stop_after(tmp_path, 5)  # start, begin, round 1, round 2, row 3
    begun = [event for event in play(tmp_path) if event.kind == "begin"]
    assert begun[0].round == 3


@pytest.mark.parametrize(
    ("owner", "name", "number"), [(Meter, "row", 2), (Server, "_remember", 6)], ids=["row", "state"]
)
def test_an_interrupt_between_a_round_and_its_row_waits_for_the_row(
    owner: Any, name: str, number: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_on_call(number, owner, name, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path)
    monkeypatch.undo()
    assert [path.stem for path in checkpoints(tmp_path)] == ["round-000006"]
    play(tmp_path)
    assert results(tmp_path) == results(whole)


def interrupt_on_call(number: int, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the end of the n-th call of a function."""
    real, calls = getattr(owner, name), iter(range(1, 1_000_000))

    def wrapped(*given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        if next(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(owner, name, wrapped)


def test_a_second_interrupt_does_not_undo_what_the_first_one_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_on_call(1, MetricsFile, "sync", monkeypatch)
    happening = run(experiment(), tmp_path, engine="sequential", save_every=1e9)
    while next(happening).round < 5:
        pass
    with pytest.raises(KeyboardInterrupt):
        happening.throw(KeyboardInterrupt)
    assert [path.stem for path in checkpoints(tmp_path)] == ["round-000005"]


def test_nothing_is_left_of_checkpoints_that_were_not_written_whole(tmp_path: Path) -> None:
    stop_after(tmp_path, 5)
    (folder,) = (tmp_path / "checkpoints").iterdir()
    (folder / ".round-000007.safetensors.partial").touch()
    play(tmp_path)
    assert not list(tmp_path.rglob("*.partial"))


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("0-*/round-*.safetensors"))


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_serves(
    damaged: int, whole: Path, tmp_path: Path
) -> None:
    happening = run(experiment(), tmp_path, engine="sequential", save_every=0.0)
    for event in happening:
        if event.round == 8:
            break
    happening.close()
    newest = checkpoints(tmp_path)[-damaged:]
    assert [path.stem for path in checkpoints(tmp_path)] == ["round-000007", "round-000008"]
    newest[0].write_bytes(newest[0].read_bytes()[:-3] + b"\x00\x01\x02")
    for path in newest[1:]:
        path.write_bytes(path.read_bytes()[:1000])
    events = play(tmp_path)
    notes = [event.note for event in events if event.kind == "note"]
    assert len(notes) == damaged
    assert all("resuming from the one before it" in str(note) for note in notes)
    assert next(event.round for event in events if event.kind == "begin") == (7, 0)[damaged - 1]
    assert results(tmp_path) == results(whole)


def test_a_damaged_memory_of_a_client_damages_its_checkpoint(whole: Path, tmp_path: Path) -> None:
    happening = run(experiment(), tmp_path, engine="sequential", save_every=0.0)
    while next(happening).round < 8:
        pass
    happening.close()
    files = map(load_file, checkpoints(tmp_path))
    older, newest = (set(file["clients.slots"].tolist()) for file in files)
    (slab,) = (tmp_path / "checkpoints").glob("0-*/clients/h.slab")
    content = bytearray(slab.read_bytes())
    content[min(newest - older) * 650 * 4] ^= 1  # the model has 650 parameters
    slab.write_bytes(content)
    events = play(tmp_path)
    assert next(event.round for event in events if event.kind == "begin") == 7
    assert results(tmp_path) == results(whole)


def test_a_checkpoint_serves_even_if_the_one_after_its_successor_was_begun(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        if path.stem == "round-000009":
            raise UndriftError("no room, when the memories of clients are written already")
        replace_file(path, content)

    monkeypatch.setattr("undrift.runs.record_file.replace_file", fail)
    with pytest.raises(UndriftError, match="no room"):
        play(tmp_path, save_every=0.0)
    monkeypatch.undo()
    checkpoints(tmp_path)[-1].write_bytes(b"")
    assert next(event.round for event in play(tmp_path) if event.kind == "begin") == 7
    assert results(tmp_path) == results(whole)


def test_the_beginning_of_a_row_is_forgotten(half: Path, whole: Path) -> None:
    with (half / "metrics.jsonl").open("a") as file:
        file.write('{"algorithm": "Ada')
    play(half)
    assert results(half) == results(whole)


@pytest.mark.parametrize("case", ["in use", "another version", "no room"])
def test_checkpoints_that_only_cannot_be_used_now_are_left_alone(
    case: str, half: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clients,) = (half / "checkpoints").glob("*/clients")
    before = {path: path.read_bytes() for path in clients.parent.rglob("*.s*")}
    if case == "in use":
        request = Lock(clients)
    elif case == "another version":
        monkeypatch.setattr("undrift.runs.checkpoint.FORMAT", 99)
    else:
        monkeypatch.setattr("undrift.training.memory.Lock", no_room)
    with pytest.raises(UndriftError, match=r"in use|version|make room"):
        play(half)
    if case == "in use":
        request.close()
    assert {path: path.read_bytes() for path in clients.parent.rglob("*.s*")} == before


def no_room(folder: Path) -> Lock:
    with writing(folder):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_rows_that_were_lost_or_torn_are_measured_again(whole: Path, tmp_path: Path) -> None:
    play(tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:-1]) + lines[-1][:20])
    play(tmp_path)
    assert results(tmp_path) == results(whole)


@pytest.mark.parametrize("name", ["r*", "[a]"])
def test_columns_are_of_this_run_alone(name: str, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    shutil.copytree(whole, tmp_path / name)
    (tmp_path / name / "metrics.parquet").unlink()
    play(tmp_path / name)
    assert len(polars.read_parquet((tmp_path / name / "metrics.parquet").read_bytes())) == 8


def test_columns_that_cannot_be_made_are_a_note(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(rows: bytes, run: str) -> bytes:
        raise polars.exceptions.PanicException("no threads")

    monkeypatch.setattr("undrift.runs.rows._columns", panic)
    play(tmp_path)
    assert results(tmp_path) == results(whole)
    log = (tmp_path / "run.log").read_text()
    assert "metrics.parquet is not written (PanicException: no threads)" in log


def test_columns_have_every_row(whole: Path) -> None:
    table = polars.read_parquet(whole / "metrics.parquet")
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert table["run"].unique().to_list() == [experiment().hash]
    for name in ("algorithm", "seed", "round", "accuracy", "h_norm", "group_factor"):
        assert table[name].to_list() == [row.get(name) for row in rows]


def test_what_a_run_says_of_itself(whole: Path) -> None:
    assert stored_experiment(whole) == experiment()
    assert Experiment.from_toml(whole / "experiment.toml") == experiment()
    facts = json.loads((whole / "experiment.json").read_text())
    assert facts["hash"] == experiment().hash
    assert len(facts["groups"]) == 2
    (session,) = json.loads((whole / "environment.json").read_text())
    assert {"python", "cores", "engine"} <= session.keys()
    assert {"torch", "mkl", "processor", "engine"} <= session["arithmetic"].keys()
    assert "all trials are done" in (whole / "run.log").read_text()


def test_going_on_where_numbers_are_rounded_otherwise_is_told(tmp_path: Path) -> None:
    stop_after(tmp_path, 5)
    path = tmp_path / "environment.json"
    sessions = json.loads(path.read_text())
    sessions[0]["arithmetic"]["processor"] = "Other, AVX2"
    path.write_text(json.dumps(sessions))
    notes = [event.note for event in play(tmp_path) if event.kind == "note"]
    assert any("began with processor Other, AVX2, now" in (note or "") for note in notes)


@pytest.fixture
def half(tmp_path: Path) -> Path:
    stop_after(tmp_path, 5)
    return tmp_path


def test_another_experiment_is_refused_with_the_first_difference(half: Path) -> None:
    with pytest.raises(UndriftError, match=r"its every is 3, not 4; choose another folder"):
        play(half, experiment(every=4, rounds=11))


def test_an_edited_experiment_is_refused(half: Path) -> None:
    path = half / "experiment.json"
    path.write_text(path.read_text().replace('"every": 3', '"every": 2'))
    for attempt in (lambda: stored_experiment(half), lambda: play(half, experiment(every=2))):
        with pytest.raises(
            UndriftError, match=r"json was edited after the run began: its settings"
        ):
            attempt()


def test_an_edited_toml_is_refused(half: Path) -> None:
    path = half / "experiment.toml"
    path.write_text(path.read_text().replace("lr = 0.1", "lr = 0.2"))
    with pytest.raises(UndriftError, match=r"toml was edited after the run began.* --out FOLDER"):
        stored_experiment(half)
    path.unlink()
    play(half, stored_experiment(half))
    assert Experiment.from_toml(path) == experiment()


def test_a_run_of_a_newer_version_is_refused(half: Path) -> None:
    path = half / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99, "version": "9.9"}))
    for attempt in (lambda: play(half), lambda: stored_experiment(half)):
        with pytest.raises(UndriftError, match=r"undrift 9\.9 in format 99"):
            attempt()


def test_other_data_are_refused(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Experiment.prepare

    def changed(self: Experiment, seed: int) -> tuple[Any, FederatedData]:
        task, data = prepare(self, seed)
        data.inputs[0, 0] += 1
        return task, data

    monkeypatch.setattr(Experiment, "prepare", changed)
    with pytest.raises(UndriftError, match="the data have changed since"):
        play(half)


def test_an_engine_that_rounds_otherwise_is_refused(half: Path) -> None:
    path = half / "environment.json"
    path.write_text(path.read_text().replace('"rounding": "python"', '"rounding": "compiled"'))
    with pytest.raises(UndriftError, match="results would differ in rounding"):
        play(half, engine="threads")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """As if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [10, 300, 1_500, 5_000, 12_000])
def test_a_full_disk_loses_nothing(size: int, whole: Path, tmp_path: Path) -> None:
    stop_after(tmp_path, 5)
    with files_no_larger_than(size), pytest.raises(UndriftError, match="make room"):
        play(tmp_path, save_every=0.0)
    play(tmp_path)
    assert results(tmp_path) == results(whole)


def test_a_folder_is_let_go_of_when_opening_fails(tmp_path: Path) -> None:
    made = experiment()
    (tmp_path / "failures.json").write_text("{")
    (tmp_path / "experiment.json").touch()
    with pytest.raises(UndriftError):
        RunFolder(tmp_path, made, *made.check())
    assert not (tmp_path / ".pid").exists()


def test_long_names_are_cut_and_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = ["x" * 300 + "1", "x" * 300 + "2", "AdaBest"]
    made = experiment(algorithms=["fedavg", "fedprox", "adabest"], rounds=1, every=1)
    named = dict(zip(made.algorithms, long, strict=True))
    monkeypatch.setattr("undrift.runs.folder.label", named.__getitem__)
    paths = [trial_name(tmp_path, made, one, 0) for one in made.algorithms]
    assert paths[2] == "2-AdaBest-seed0"
    assert all(path[2:].startswith("x" * SHORTENED + "-") for path in paths[:2])
    assert len({path[2:] for path in paths}) == 3  # also without their numbers
    play(tmp_path, made)
    assert {path.stem for path in (tmp_path / "models").iterdir()} == set(paths)


def test_a_folder_whose_name_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match=r"cannot be written \(File name too long\)"):
        play(tmp_path / ("x" * 5000))


def test_nobody_may_deliver_before_the_first_checkpoint(tmp_path: Path) -> None:
    made = experiment(dropout=1 - 1e-9, rounds=2)
    stop = run(made, tmp_path, engine="sequential", save_every=0.0)
    while next(stop).round < 1:
        pass
    stop.close()
    begun = [event.round for event in play(tmp_path, made) if event.kind == "begin"]
    assert begun == [1, 0]
    with pytest.raises(UndriftError, match="dropout must be a number >= 0 and < 1"):
        experiment(dropout=1.0)


SCRIPT = "import sys; from undrift.cli.app import main; main(sys.argv[1:])"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_signals_leave_a_run_that_goes_on(
    number: signal.Signals, code: int, whole: Path, tmp_path: Path
) -> None:
    file, out = tmp_path / "long.toml", tmp_path / "run"
    file.write_text(experiment(rounds=100_000).to_toml())
    options = ["--json", "--engine", "sequential", "--out", str(out)]
    command = [sys.executable, "-c", SCRIPT, "run", str(file), *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        for line in process.stdout or ():
            if json.loads(line)["event"] == "row":
                break
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == code
    assert said == f"stopped; resume with: undrift resume {out}\n"
    reached = int(checkpoints(out)[-1].stem.removeprefix("round-"))
    begun = run(stored_experiment(out), out)
    assert [next(begun).kind, next(begun).round] == ["start", reached]
    begun.close()
