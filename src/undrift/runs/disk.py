"""Disk space of run directories: their size, what of them can go, and their removal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from undrift.config import UndriftError
from undrift.runs.layout import (
    HOLDS,
    STUDY_HOLDS,
    RunFile,
    checkpoint_files,
    is_study,
    model_file,
    study_runs,
    trial_folder,
    trial_named,
)
from undrift.runs.reading import is_folder, missing, read_experiment, read_failures, read_names
from undrift.runs.rows import Tally, read_rows
from undrift.runs.tensor_file import dead_bytes
from undrift.system.files import Damaged, writing
from undrift.system.lock import Lock

WORKING = (".lock", ".pid", f"{RunFile.METRICS}.unused")
"""Files that a run writes beside those of `RunFile`."""

STUDY_WORKING = (".study.lock", ".claims")
"""Files that a study writes beside those of `StudyFile`."""


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.lstat().st_size for one in files)


def refuse_no_run(run: Path) -> None:
    """Raise unless a path is a run directory."""
    if not is_folder(run) or not (run / RunFile.EXPERIMENT).is_file():
        raise missing(run / RunFile.EXPERIMENT)


def within(folder: Path) -> list[Path]:
    """The run directories of a study or sweep; of a run directory, itself."""
    return study_runs(folder) if is_study(folder) else [folder]


def refuse_others(run: Path) -> None:
    """Raise unless a path is a run directory or a study, and no link, with no other files in it."""
    study = is_study(run)
    for one in within(run) if study else ():
        refuse_others(one)
    if not study:
        refuse_no_run(run)
    if run.is_symlink():
        raise UndriftError(f"{run} is a link to {run.resolve()}; give that folder itself")
    known, working = (STUDY_HOLDS, STUDY_WORKING) if study else (HOLDS, WORKING)
    for path in sorted(run.iterdir()):
        name = path.name.removeprefix(".").removesuffix(".partial")
        best = study and path.match("best-*.toml")
        if path.name not in working and name not in known and not best:
            raise UndriftError(
                f"{run} has {path.name} in it, which is no file of a run; move it elsewhere, or "
                "remove the folder yourself"
            )


def remove(run: Path) -> int:
    """Remove a run directory or a study; returns the bytes that were freed."""
    refuse_others(run)
    if is_study(run):
        freed = sum(map(remove, within(run))) + size(run)
        with writing(run):
            shutil.rmtree(run)
        return freed
    with closing(Lock(run)), writing(run):
        freed, settings = size(run), run / RunFile.EXPERIMENT
        for path in sorted(run.iterdir(), key=lambda path: path == settings):
            _remove(path)  # the settings last: what a crash leaves is still a run to be removed
        run.rmdir()
    return freed


def prune(run: Path, *, everything: bool = False, dry_run: bool = False) -> int:
    """Remove checkpoints that are not needed; returns the bytes that were or would be freed.

    Of trials that are done, the last state is kept, from which they can be extended and forked.
    With `everything`, theirs are all removed.
    """
    refuse_no_run(run)
    with closing(Lock(run)), writing(run):
        freed = 0
        for folder in _done(run):
            states = checkpoint_files(folder)
            unused = folder.glob("*.unused")  # damaged ones, set aside when the run was resumed
            for path in [folder] if everything else [*states[1:], *unused]:
                freed += size(path)
                if not dry_run:
                    _remove(path)
            if states and not everything:
                freed += _compact(states[0], dry_run)
    return freed


def _compact(path: Path, dry_run: bool) -> int:
    """Remove client records that a last state does not need; returns the bytes that they take."""
    with suppress(Damaged):  # `undrift verify` tells
        dead, _ = dead_bytes(path)
        if dead > 0 and not dry_run:
            from undrift.runs.checkpoint import compact

            compact(path)
        return max(dead, 0)
    return 0


def _done(run: Path) -> Iterator[Path]:
    """The folders of trials that have ended, with a model or a failure."""
    settings = run / RunFile.EXPERIMENT
    experiment = read_experiment(settings)
    names = list(read_names(settings, experiment["algorithms"]))
    trials = {(name, seed) for name in names for seed in experiment["seeds"]}
    failed = {(one.algorithm, one.seed) for one in read_failures(run / RunFile.FAILURES)}
    metrics, tally = run / RunFile.METRICS, Tally()
    for line, row in read_rows(metrics.read_bytes() if metrics.exists() else b"", trials):
        if row is not None:
            tally.add(row, line)
    for name, seed in trials:
        trial = trial_named(run, names.index(name), seed)
        if trial is None:
            continue
        place = (name, seed)
        ended = tally.stop(place) or experiment.get("rounds") in tally.rounds(place)
        if place in failed or (ended and model_file(run, trial).exists()):
            yield trial_folder(run, trial)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
