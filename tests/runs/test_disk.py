"""Disk space of runs: what can be freed, what must stay, and what is never touched."""

from __future__ import annotations

import contextlib
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_extend import (
    LARGE,
    Killed,
    assert_same,
    deadly,
    experiment,
    play,
    results,
    rows,
    same,
    states,
)
from undrift.cli.app import main
from undrift.runs import checkpoint, disk
from undrift.runs.fork import forked, plant
from undrift.runs.runner import run
from undrift.runs.tensor_file import dead_bytes
from undrift.runs.verify import verify
from undrift.system.lock import Lock

Shown = pytest.CaptureFixture[str]

DONE = ["0-AdaBest-seed0 4", "1-FedAdam-seed0 1"]  # which fails in round 2
HALF = ["0-AdaBest-seed1 2", "0-AdaBest-seed1 3"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is done, one that has one trial done and one not, and a larger one."""
    folder = tmp_path_factory.mktemp("kept")
    play(folder / "done", experiment(), save_every=0.0)
    stopped = run(experiment(seeds=(0, 1)), folder / "half", engine="sequential", save_every=0.0)
    for event in stopped:
        if event.seed == 1 and event.round == 3:
            break
    stopped.close()
    play(folder / "larger", experiment(**LARGE), save_every=0.0)
    return folder


@pytest.fixture
def done(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept / "done", tmp_path / "done")


@pytest.fixture
def half(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept / "half", tmp_path / "half")


def checkpoints(run: Path) -> list[str]:
    return sorted(
        f"{path.parent.name} {int(path.stem.removeprefix('round-'))}"
        for path in (run / "checkpoints").glob("*/round-*.safetensors")
    )


def test_a_trial_that_is_done_keeps_one_state(kept: Path) -> None:
    assert checkpoints(kept / "done") == DONE
    assert checkpoints(kept / "half") == sorted([*DONE, *HALF])


def test_what_is_not_needed_goes_and_the_run_can_still_grow(kept: Path, done: Path) -> None:
    (state,) = (done / "checkpoints").glob("0-*/round-*")
    old, unused = state.with_stem("round-000003"), state.with_name("round-000002.unused")
    shutil.copy(state, old)
    shutil.copy(state, unused)
    before = disk.size(done)
    assert disk.prune(done, dry_run=True) == 2 * state.stat().st_size
    assert disk.size(done) == before
    assert disk.prune(done) == 2 * state.stat().st_size
    assert disk.size(done) == before - 2 * state.stat().st_size
    assert verify(done).problems == []
    began = [e.round for e in play(done, experiment(**LARGE)) if e.kind == "begin"]
    assert began == [4, 0, 0, 0, 0]
    assert_same(done, kept / "larger")


def test_all_states_of_what_is_done_can_go(kept: Path, done: Path, tmp_path: Path) -> None:
    assert disk.prune(done, everything=True) > 1000
    assert list((done / "checkpoints").iterdir()) == []
    assert verify(done).problems == []
    assert [event.kind for event in play(done, experiment())] == ["note"]
    fork = forked(done, ["fedavg"], round=3, source="AdaBest")
    assert len(list(plant(fork, tmp_path / "fork", done))) == 3
    play(done, experiment(**LARGE))
    assert_same(done, kept / "larger")


def test_states_that_need_not_be_kept_go_with_the_end_of_a_trial(
    kept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    left: dict[str, list[int]] = {"row": [], "end": []}
    for event in run(experiment(), out, engine="sequential", save_every=0.0, keep_states=False):
        if event.kind in left:
            left[event.kind].append(len(checkpoints(out)))
    assert left["end"] == [0, 0]
    assert all(left["row"])
    assert results(out) == results(kept / "done")
    assert verify(out).problems == []
    assert [event.kind for event in play(out, experiment())] == ["note"]


def test_interrupted_trials_keep_their_states(half: Path, tmp_path: Path) -> None:
    disk.prune(half)
    assert checkpoints(half) == sorted([*DONE, *HALF])
    disk.prune(half, everything=True)
    assert checkpoints(half) == HALF
    began = [e.round for e in play(half) if e.kind == "begin"]
    assert began == [3, 0]
    play(tmp_path / "quiet", experiment(seeds=(0, 1)))
    assert rows(half) == rows(tmp_path / "quiet")


def test_a_trial_that_was_just_extended_is_not_done(done: Path) -> None:
    happening = run(experiment(rounds=7), done, engine="sequential")
    assert next(happening).kind == "start"
    happening.close()  # the model of round 4 is still there
    disk.prune(done, everything=True)
    assert checkpoints(done) == DONE[:1]


def test_the_commands_free_what_they_say(done: Path, half: Path, capsys: Shown) -> None:
    main(["prune", str(done), str(half), "--all", "--dry-run"])
    main(["prune", str(done), str(half), "--all"])
    lines = capsys.readouterr().out.splitlines()
    would, did = lines[:2], lines[2:]
    assert [line.replace(" would be", "") for line in would] == did
    assert did[0].startswith(f"{done}: ")
    assert did[0].endswith("kB freed")
    main(["rm", str(done), str(half), "--yes"])
    assert not done.exists()
    assert not half.exists()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"removed {done}", f"removed {half}"]


def refused(capsys: Shown, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_what_is_no_run_or_is_in_use_is_not_removed(
    done: Path, half: Path, tmp_path: Path, capsys: Shown
) -> None:
    (tmp_path / "other").mkdir()
    (half / "thesis.tex").touch()
    (tmp_path / "link").symlink_to(done)
    for path, says in (
        (tmp_path / "other", "is not a run directory"),
        (tmp_path / "nothing", "there is no folder"),
        (half, "has thesis.tex in it, which is no file of a run"),
        (tmp_path / "link", f"is a link to {done}"),
    ):
        assert says in refused(capsys, "rm", str(done), str(path), "--yes")
    assert "is not a run directory" in refused(capsys, "prune", str(tmp_path / "other"))
    (half / "thesis.tex").unlink()
    with closing(Lock(done)):
        assert "is in use by process" in refused(capsys, "rm", str(half), str(done), "--yes")
        assert "is in use by process" in refused(capsys, "prune", str(done))
    for command in ("rm", "prune"):
        assert "at least one run directory" in refused(capsys, command)
    assert checkpoints(done) == DONE
    assert half.exists()


@pytest.mark.parametrize(("answer", "gone"), [("y", True), ("", False), ("no", False)])
def test_people_are_asked(
    answer: str, gone: bool, done: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nobody can be asked here; give --yes" in refused(capsys, "rm", str(done))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    if gone:
        main(["rm", str(done)])
    else:
        assert "nothing was removed" in refused(capsys, "rm", str(done))
    assert done.exists() is not gone


def test_a_removal_that_was_interrupted_can_be_repeated(
    done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("undrift.runs.disk.shutil.rmtree", fail)
        with pytest.raises(KeyboardInterrupt):
            disk.remove(done)
    disk.remove(done)
    assert not done.exists()


def test_a_large_run_says_its_size(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from undrift.cli import size

    assert size.advice(done) is None
    monkeypatch.setattr(size, "LARGE", 1000)
    assert f"undrift prune --all {done}" in str(size.advice(done))
    assert [size.said(n) for n in (0, 999, 1500, 759e6)] == ["0 B", "999 B", "1.50 kB", "759 MB"]


def slabs(run: Path) -> int:
    return sum(path.stat().st_size for path in run.rglob("*.slab"))


def needed(run: Path) -> int:
    return sum(dead_bytes(path)[1] for path in run.rglob("round-*.safetensors"))


ALL = {"algorithms": ["adabest"], "sampler": "Uniform(6)"}  # every round changes all records


@pytest.fixture
def loose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose slabs have records of earlier states, as those of earlier versions have."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "compact", lambda path: None)
        play(tmp_path / "loose", experiment(**ALL), save_every=0.0)
    assert slabs(tmp_path / "loose") > 2 * needed(tmp_path / "loose")
    return tmp_path / "loose"


def assert_compact(run: Path, before: dict[str, dict[str, Any]]) -> None:
    assert slabs(run) == needed(run)
    assert verify(run).problems == []
    after = states(run)
    for name, state in before.items():
        assert [key for key in state if not same(state[key], after[name][key])] == []


def test_records_that_only_older_states_need_go(loose: Path, tmp_path: Path) -> None:
    before, dead = states(loose), slabs(loose) - needed(loose)
    assert disk.prune(loose, dry_run=True) == dead
    assert disk.prune(loose) == dead
    assert_compact(loose, before)
    assert disk.prune(loose) == 0
    at_once = play(tmp_path / "at once", experiment(**ALL, rounds=7), save_every=0.0)
    assert slabs(tmp_path / "at once") == needed(tmp_path / "at once")  # by itself
    assert at_once[-1].kind == "end"
    play(loose, experiment(**ALL, rounds=7), save_every=0.0)
    assert_same(loose, tmp_path / "at once")


@pytest.mark.parametrize("number", range(8))
def test_a_kill_while_records_are_copied_loses_nothing(
    number: int, loose: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = states(loose)
    with monkeypatch.context() as patch:
        countdown = [number]
        for name in ("replace", "rmdir", "unlink"):
            patch.setattr(os, name, deadly(getattr(os, name), countdown))
        with contextlib.suppress(Killed):
            disk.prune(loose)
    assert verify(loose).problems == []
    disk.prune(loose)
    assert_compact(loose, before)
