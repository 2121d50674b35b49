"""Running an experiment in a run directory: all of it, or what is left of it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save as serialize

from undrift import checkpoint
from undrift.config import UndriftError
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.engines import Engine, EngineName
from undrift.engines import engine as make_engine
from undrift.experiment import Experiment
from undrift.leg import Leg
from undrift.lock import replace_file, writing
from undrift.names import algorithm
from undrift.origin import carry, origin_file
from undrift.rounds import State, prepare
from undrift.runs import Row, RunFolder, leg_name
from undrift.task import Task

SAVE_EVERY = 30.0
"""seconds between two checkpoints"""


@dataclass(frozen=True)
class Event:
    """What happened in a run.

    start   it begins, or goes on; `note` is where clients run
    begin   a leg begins after `round`            round   a round is done
    row     an evaluation, whose metrics are `row`    end   a leg is done, or has a `note` why not
    note    something that people should know
    """

    kind: Literal["start", "begin", "round", "row", "end", "note"]
    algorithm: str = ""
    label: str = ""
    seed: int = 0
    round: int = 0
    row: Row | None = None
    note: str | None = None


def run(
    experiment: Experiment,
    folder: str | Path,
    *,
    engine: EngineName = "auto",
    workers: int | None = None,
    save_every: float = SAVE_EVERY,
    **session: Any,
) -> Generator[Event, None, None]:
    """Run an experiment in a folder, yielding what happens; what is done already is not done again.

    engine, workers  where clients run, as for `undrift.engines.engine`
    save_every       seconds between two checkpoints; a crash costs no more than that
    session          anything that environment.json should say of this session

    Leave the loop whenever you like: the run is saved, and goes on when you call this again.
    """
    if not save_every >= 0:
        raise UndriftError(f"save_every={save_every}: must be a number of seconds >= 0")
    torch.set_num_threads(1)  # small models gain nothing from more, and bits must not depend on it
    first = experiment.check()
    with RunFolder(Path(folder), experiment, *first, command=session.get("command", "")) as files:
        tracks = [
            Track(files, made, seed, save_every)
            for seed in experiment.seeds
            for made in experiment.algorithms
        ]
        left = [track for track in tracks if not track.done]
        if not left:
            yield Event("note", note=f"{folder} is complete; there is nothing left to run")
            return
        chosen, about = _engine(files, engine, workers, first, experiment)
        files.begin(engine=about, **session)
        files.log(f"session {len(files.sessions)} begins: {about}")
        yield Event("start", note=about)
        for seed, legs in groupby(left, key=lambda track: track.seed):
            task, data = first if seed == experiment.seeds[0] else experiment.prepare(seed)
            for track in legs:
                yield from track.go(task, data, chosen)
        files.log("all legs are done")


def _engine(
    files: RunFolder,
    name: EngineName,
    workers: int | None,
    first: tuple[Task, FederatedData],
    experiment: Experiment,
) -> tuple[Engine, str]:
    """The engine, which must round numbers as in the sessions before, and how it is described."""
    before = files.sessions[0]["engine"] if files.sessions else None
    if name == "auto" and before is not None:
        name = "compiled" if _compiled(before) else "threads"
    chosen = make_engine(name, workers)
    about = prepare(chosen, *first, experiment.local)
    if before is not None and _compiled(about) != _compiled(before):
        raise UndriftError(
            f"{files.folder} was begun with {before}, and this would be {about}: results would "
            "differ in rounding; make the same engine possible, or choose another folder"
        )
    return chosen, about


def _compiled(about: str) -> bool:
    return about.endswith("compiled")


@dataclass
class Track:
    """A leg's way through the run directory: rows, checkpoints, verdict, final model."""

    files: RunFolder
    algorithm: Algorithm
    seed: int
    save_every: float
    name: str = field(init=False)
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.name = leg_name(self.files.experiment, self.algorithm, self.seed)
        self.folder = self.files.folder / "checkpoints" / self.name

    @property
    def place(self) -> tuple[str, int]:
        return repr(self.algorithm), self.seed

    @property
    def model(self) -> Path:
        """The file with the model that the leg ends with; it is the last thing that is written."""
        return self.files.folder / "models" / f"{self.name}.safetensors"

    @property
    def done(self) -> bool:
        ended = any((v["algorithm"], v["seed"]) == self.place for v in self.files.verdicts)
        return ended or (self.model.exists() and self._measured(self.files.experiment.rounds))

    def go(self, task: Task, data: FederatedData, engine: Engine) -> Iterator[Event]:
        """Train from the last checkpoint to the end, or until the consumer has enough."""
        leg = Leg(self.files.experiment, self.algorithm, self.seed, task, data, engine, self.folder)
        state, notes = self._newest()
        for note in notes:
            self.files.log(note)
            yield self._event("note", note=note)
        if state is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            state = self._origin(task)
        reached = state.t if state else 0
        self.files.trim(*self.place, reached)
        if state:
            seconds = [row["seconds"] for row in self.files.rows(*self.place)]
            leg.resume(state, max(seconds, default=0.0))
        self.files.log(f"{self.name} begins after round {reached}")
        yield self._event("begin", reached)
        try:
            saved = time.monotonic()
            for round, measured in leg:
                row = self.files.add(measured) if measured else None
                reached = round.t
                if time.monotonic() - saved >= self.save_every and not leg.verdict:
                    self._save(leg)
                    saved = time.monotonic()
                if row:
                    yield self._event("row", reached, row=row)
                yield self._event("round", reached)
            self._finish(leg, reached)
        except BaseException:
            if leg.state and leg.state.t == reached and not leg.verdict:
                with suppress(UndriftError):  # of two errors, the first one tells more
                    self._save(leg)
            raise
        finally:
            if leg.state:
                leg.state.close()
        yield self._event("end", reached, note=leg.verdict)

    def _event(self, kind: Any, round: int = 0, **more: Any) -> Event:
        name = repr(self.algorithm)
        return Event(kind, name, self.files.labels[name], self.seed, round, **more)

    def _finish(self, leg: Leg, reached: int) -> None:
        """Write what remains of a leg."""
        if leg.verdict:
            self.files.end(*self.place, reached, leg.verdict)
            self.files.log(f"{self.name} ends in round {reached}: {leg.verdict}")
            return
        self._save(leg)
        if leg.state is None:
            raise AssertionError("a leg that has ended has a state")
        server, task = leg.state.server, leg.task
        x = server.x if self.algorithm.deploys == "cloud" else server.xbar
        tensors = task.parameters(x) | task.unpack(leg.state.buffers)
        own = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        with writing(self.model):
            self.model.parent.mkdir(exist_ok=True)
        replace_file(self.model, serialize(own))
        self.files.log(f"{self.name} is done")

    def _save(self, leg: Leg) -> None:
        """Write a checkpoint, and keep the one before it in case this one is damaged."""
        state = leg.state
        if state is None or self._path(state.t).exists():
            return
        state.notes = leg.meter.notes()
        self.files.sync()
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        checkpoint.save(state, self._path(state.t))
        _, *older = checkpoints(self.folder)
        checkpoint.keep(state, older[:1])
        for path in older[1:]:
            path.unlink()

    def _path(self, t: int) -> Path:
        return self.folder / f"round-{t:06d}.safetensors"

    def _newest(self) -> tuple[State | None, list[str]]:
        """The newest state that is whole and has all its rows, and what was wrong with others."""
        notes = []
        for path in checkpoints(self.folder):
            if not self._measured(round_of(path)):
                notes.append(f"{path}: rows of metrics.jsonl are missing that came before it")
            else:
                try:
                    return checkpoint.load(path), notes
                except UndriftError as error:
                    notes.append(str(error))
            notes[-1] += "; going on from the one before it"
            with writing(path):
                path.replace(path.with_suffix(".unused"))
        return None, notes

    def _origin(self, task: Task) -> State | None:
        """The state that another run had, if this one is its fork."""
        origin = self.files.experiment.origin
        if origin is None:
            return None
        path = origin_file(self.files.folder, self.seed)
        if not path.exists():
            raise UndriftError(
                f"{path}, from which this run starts, is not there; `undrift fork` makes it"
            )
        state = checkpoint.load(path)
        try:
            source = algorithm(origin.algorithm)
            folder, fresh = self.folder, origin.fresh
            return carry(state, source, self.algorithm, task, fresh=fresh, folder=folder)
        finally:
            state.close()

    def _measured(self, t: int) -> bool:
        """Whether there is a row for each evaluation up to a round."""
        experiment = self.files.experiment
        first = experiment.origin.round + 1 if experiment.origin else 1
        due = {one for one in range(first, t + 1) if experiment.evaluates(one)}
        return due <= {row["round"] for row in self.files.rows(*self.place)}


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints of a leg, the newest first."""
    return sorted(folder.glob("round-*.safetensors"), key=round_of, reverse=True)


def round_of(path: Path) -> int:
    """The round that a checkpoint's name tells."""
    found = re.fullmatch(r"round-(\d+)", path.stem)
    return int(found[1]) if found else -1
