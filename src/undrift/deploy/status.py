"""What is known about a deployment's clients, and how to let one go on that lost its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.core import Struct
from undrift.deploy.folder import DeploymentFolder
from undrift.deploy.roster import Entry, Roster
from undrift.runs.layout import RunFile, checkpoint_files, trial_folder, trial_named
from undrift.runs.reading import read_experiment
from undrift.system.lock import Lock, holder


def status_of(folder: DeploymentFolder) -> dict[str, Any]:
    """Whether a deployment runs, and the entries of its clients."""
    roster, process = Roster.read(folder.run), holder(folder.run)
    if roster is None:
        return {"state": "it has not begun: not all nodes have joined yet", "clients": []}
    state = "it is not running" if process is None else f"process {process} runs it"
    return {"state": state, "clients": [asdict(one) for one in roster.clients]}


def forgive(folder: DeploymentFolder, client: str) -> Iterator[str]:
    """Set the receipts of a client to the newest memory that it has; yields what was done.

    Only those of the trial that lacks it: the client may have its memory of others.
    """
    from undrift.runs import checkpoint

    roster = Roster.read(folder.run)
    if roster is None:
        raise UndriftError(f"{folder.path} has not begun; there is nothing to forgive")
    number = _number(roster, client)
    entry = roster.clients[number]
    if entry.lost is None:
        raise UndriftError(
            f"{roster.told(number)} has not lost its memory; `undrift deploy status` tells who has"
        )
    lock = Lock(folder.run)
    try:
        changed = 0
        for path in _checkpoints(folder.run, entry):
            state = checkpoint.load(path)
            try:
                if number in state.clients and state.clients[number].accepted > entry.lost:
                    state.clients.put(number, Struct(accepted=entry.lost))
                    checkpoint.save(state, path)
                    changed += 1
            finally:
                state.close()
        where = f"its memory of round {entry.lost}" if entry.lost else "no memory"
        entry.lost = entry.absent = None
        roster.write(folder.run)
    finally:
        lock.close()
    yield (
        f"{roster.told(number)} goes on from {where} in {entry.algorithm}, seed {entry.seed} "
        f"({changed} checkpoints changed)"
    )


def _checkpoints(run: Path, entry: Entry) -> list[Path]:
    """All checkpoints of the trial in which a client was last asked."""
    algorithms = read_experiment(run / RunFile.EXPERIMENT)["algorithms"]
    places = (i for i, one in enumerate(algorithms) if one["name"] == entry.algorithm)
    names = (trial_named(run, place, entry.seed) for place in places)
    return [path for name in names if name for path in checkpoint_files(trial_folder(run, name))]


def _number(roster: Roster, client: str) -> int:
    names = [one.name for one in roster.clients]
    if client in names:
        return names.index(client)
    if client.isdecimal() and int(client) < len(names):
        return int(client)
    raise UndriftError(f"no client is called {client!r}; known: {', '.join(names)}")
