"""Running an experiment in a run directory: all of it, or what is left of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save as serialize

from undrift.arithmetic import in_one_thread
from undrift.config import UndriftError
from undrift.config.choices import SAVE_EVERY, EngineName
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.engines import Engine, Prepared
from undrift.engines import engine as make_engine
from undrift.experiment.experiment import Experiment
from undrift.federation.rounds import State, prepare
from undrift.runs import checkpoint
from undrift.runs.entries import Row, TrialKey
from undrift.runs.folder import RunFolder, trial_name
from undrift.runs.layout import (
    RunFile,
    checkpoint_file,
    checkpoint_files,
    model_file,
    round_of,
    trial_folder,
)
from undrift.runs.origin import first_state
from undrift.runs.trial import Trial
from undrift.system.files import Damaged, replace_file, writing
from undrift.system.signals import uninterrupted
from undrift.training.task import Task

Kind = Literal["start", "done", "begin", "round", "row", "end", "note"]


@dataclass(frozen=True)
class Event:
    """What happened in a run.

    start   it begins, or goes on; `note` is where clients run
    done    an earlier session did this trial       begin   a trial begins after `round`
    round   a round is done                       row     an evaluation, its metrics are `row`
    end     a trial is done; `note` is its failure  note    something that people should know
    """

    kind: Kind
    algorithm: str = ""
    label: str = ""
    seed: int = 0
    round: int = 0
    row: Row | None = None
    note: str | None = None


@in_one_thread
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
    first = experiment.check()
    with RunFolder(Path(folder), experiment, *first, command=session.get("command", "")) as files:
        trials = [
            TrialRun(files, made, seed, save_every)
            for seed in experiment.seeds
            for made in experiment.algorithms
        ]
        left = [trial for trial in trials if not trial.done()]
        files.sums.write()
        for wrong in files.notes:
            yield Event("note", note=wrong)
        if not left:
            yield Event("note", note=f"{folder} is complete; there is nothing left to run")
            return
        chosen, prepared = _engine(files, engine, workers, first, experiment)
        note = files.begin(engine=prepared.about, rounding=prepared.rounding, **session)
        yield Event("start", note=prepared.about)
        for advice in filter(None, (note, first[1].note, experiment.advice(first[1]))):
            yield Event("note", note=advice)
        for trial in trials:
            if trial not in left:
                yield trial.event("done", experiment.rounds)
        for seed, same_seed in groupby(left, key=lambda trial: trial.seed):
            task, data = first if seed == experiment.seeds[0] else experiment.prepare(seed)
            for trial in same_seed:
                yield from trial.go(task, data, chosen)
        files.log("all trials are done")


def _engine(
    files: RunFolder,
    name: EngineName,
    workers: int | None,
    first: tuple[Task, FederatedData],
    experiment: Experiment,
) -> tuple[Engine, Prepared]:
    """The engine, which must round numbers as in the sessions before, and how it runs."""
    chosen = make_engine(engine_of(files.sessions) if name == "auto" else name, workers)
    prepared = prepare(chosen, *first, experiment.local)
    if files.sessions and files.sessions[0].get("rounding") != prepared.rounding:
        raise UndriftError(
            f"{files.folder} was begun with {files.sessions[0].get('engine')}, and this would be "
            f"{prepared.about}: results would differ in rounding; make the same engine possible, "
            "or choose another folder"
        )
    return chosen, prepared


def engine_of(sessions: Sequence[Row]) -> EngineName:
    """The engine that rounds numbers as the sessions of a run did; any if there was none."""
    kinds: dict[str, EngineName] = {"compiled": "compiled", "python": "threads"}
    return kinds.get(sessions[0].get("rounding", ""), "auto") if sessions else "auto"


@dataclass
class TrialRun:
    """A trial's way through the run directory: rows, checkpoints, failure, final model."""

    files: RunFolder
    algorithm: Algorithm
    seed: int
    save_every: float
    name: str = field(init=False)
    folder: Path = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = trial_name(self.files.experiment, self.algorithm, self.seed)
        self.folder = trial_folder(self.files.folder, self.name)

    @property
    def place(self) -> TrialKey:
        return repr(self.algorithm), self.seed

    @property
    def model(self) -> Path:
        """The file with the final model; it is the last thing that is written."""
        return model_file(self.files.folder, self.name)

    def done(self) -> bool:
        """Whether nothing is left to do: then all of it has a checksum, and is what that says."""
        failure, tally = self.files.failure(self.place), self.files.metrics.tally
        if failure is None and not self.model.exists():
            return False
        last = failure["round"] if failure else self.files.experiment.rounds
        if not self._measured(last) or (failure and last not in tally.rounds(self.place)):
            self.notes.append(
                f"{self.name} was done, but rows of it are missing in {RunFile.METRICS}"
            )
            return False
        if failure:
            self.files.sums.cover_failure(failure)
        elif wrong := self.files.sums.cover_model(self.model):
            self.notes.append(f"{self.model} {wrong}; it is made again")
            return False
        self.files.sums.rows[self.place] = tally.sums(self.place, last)
        return True

    def go(self, task: Task, data: FederatedData, engine: Engine) -> Iterator[Event]:
        """Train from the last checkpoint to the end, or until the consumer has enough."""
        trial = Trial(self.files.experiment, self.algorithm, self.seed, task, data, engine)
        state = self._newest() or self._first(trial)
        reached = state.t

        def unmeasured(waiting: int) -> bool:
            """A state that has moved on gets its row first, unless somebody insists."""
            return state.t > reached and not waiting

        try:
            self.files.rewind(self.place, reached)
            for note in self.notes:
                self.files.log(note)
                yield self.event("note", note=note)
            self.files.log(f"{self.name} begins after round {reached}")
            yield self.event("begin", reached)
            saved, steps = (
                time.monotonic(),
                trial.follow(state, self.files.metrics.tally.seconds(self.place)),
            )
            while True:
                with uninterrupted(unmeasured):
                    round, measured = next(steps, (None, None))
                    if round is None:
                        break
                    row = self.files.add(measured) if measured else None
                    reached = round.t
                if time.monotonic() - saved >= self.save_every and not trial.failure:
                    self._save(trial, state)
                    saved = time.monotonic()
                if row:
                    yield self.event("row", reached, row=row)
                yield self.event("round", reached)
            self._finish(trial, state)
        except BaseException:
            if state.t == reached and not trial.failure:
                with suppress(UndriftError):  # of two errors, the first one tells more
                    self._save(trial, state)
            raise
        finally:
            state.close()
        yield self.event("end", reached, note=trial.failure)

    def event(self, kind: Kind, round: int = 0, **more: Any) -> Event:
        """What happened to this trial."""
        name = repr(self.algorithm)
        return Event(kind, name, self.files.labels[name], self.seed, round, **more)

    def _first(self, trial: Trial) -> State:
        """The state that the trial starts with, if there is no checkpoint."""
        shutil.rmtree(self.folder, ignore_errors=True)
        origin = self.files.experiment.origin
        if origin is None:
            return trial.start(self.folder)
        where = (self.files.folder, self.seed)
        return first_state(origin, *where, self.algorithm, trial.task, self.folder)

    def _finish(self, trial: Trial, state: State) -> None:
        """Write what remains of a trial."""
        if trial.failure:
            self.files.end(self.place, state.t, trial.failure)
            self.files.log(f"{self.name} ends in round {state.t}: {trial.failure}")
            return
        self._save(trial, state)
        x = state.server.x if self.algorithm.deploys == "cloud" else state.server.xbar
        tensors = trial.task.parameters(x) | trial.task.unpack(state.buffers)
        content = serialize({name: t.detach().cpu().clone() for name, t in tensors.items()})
        with writing(self.model):
            self.model.parent.mkdir(exist_ok=True)
        replace_file(self.model, content)
        self.files.sums.cover(self.model, content)
        self.files.seal(self.place, state.t)
        self.files.log(f"{self.name} is done")

    def _save(self, trial: Trial, state: State) -> None:
        """Write a checkpoint, and keep the one before it in case this one is damaged."""
        path = checkpoint_file(self.folder, state.t)
        if path.exists() or state.t == 0:
            return
        with uninterrupted():  # or a second Ctrl-C would undo what the first one saves
            state.notes = trial.meter.notes()
            self.files.metrics.sync()
            checkpoint.save(state, path)
            self.files.seal(self.place, state.t)
            _, *older = checkpoint_files(self.folder)
            checkpoint.keep(state, older[:1])
            for old in [*older[1:], *self.folder.glob(".round-*.partial")]:  # of a kill
                with writing(old):
                    old.unlink()

    def _newest(self) -> State | None:
        """The newest state that is whole and has all its rows; notes tell what others lack."""
        notes = self.notes
        for path in checkpoint_files(self.folder):
            if not self._measured(round_of(path)):
                notes.append(f"{path}: rows of {RunFile.METRICS} are missing that came before it")
            else:
                try:
                    return _readable(checkpoint.load(path))
                except Damaged as error:
                    notes.append(str(error))
            notes[-1] += "; going on from the one before it"
            with writing(path):
                path.replace(path.with_suffix(".unused"))
        return None

    def _measured(self, t: int) -> bool:
        """Whether there is a row for each evaluation up to a round."""
        experiment = self.files.experiment
        first = experiment.origin.round + 1 if experiment.origin else 1
        due = {one for one in range(first, t + 1) if experiment.evaluates(one)}
        return due <= self.files.metrics.tally.rounds(self.place)


def _readable(state: State) -> State:
    """The state, if what all clients remember can be read: later, no older one might be left."""
    try:
        for store in (state.clients, state.models):
            for _ in store.values() if store is not None else ():
                pass
    except BaseException:
        state.close()
        raise
    return state
