"""Runs an experiment in a run directory, from the start or from the last checkpoints."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save as serialize

from undrift.arithmetic import steadily
from undrift.config import UndriftError, own
from undrift.config.choices import SAVE_EVERY
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.engines import Auto, Engine, Prepared
from undrift.engines import engine as make_engine
from undrift.experiment.advice import advice
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import State
from undrift.runs import checkpoint
from undrift.runs.clients import write_clients
from undrift.runs.deployed import about, metadata
from undrift.runs.entries import Row, TrialKey
from undrift.runs.folder import RunFolder, trial_name
from undrift.runs.identity import own_code, refuse_deployment
from undrift.runs.layout import (
    RunFile,
    checkpoint_file,
    checkpoint_files,
    model_file,
    round_of,
    trial_folder,
)
from undrift.runs.origin import first_state, refuse_unfit
from undrift.runs.reading import read_experiment
from undrift.runs.tensor_file import dead_bytes
from undrift.runs.trial import Trial
from undrift.system.files import Damaged, replace_file, writing
from undrift.system.signals import uninterrupted
from undrift.training.task import Task

Kind = Literal["start", "done", "begin", "round", "row", "end", "note"]


@dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    start   the session starts; `note` describes the engine
    done    this trial was finished by an earlier session
    begin   a trial starts after `round`, 0 if it is new
    round   a round has ended
    row     an evaluation; `row` has its metrics
    end     a trial has ended; `note` is its failure, and `stopped` its stop rule, if any
    note    a warning or remark for the user
    """

    kind: Kind
    algorithm: str = ""
    label: str = ""
    seed: int = 0
    round: int = 0
    row: Row | None = None
    note: str | None = None
    stopped: str | None = None


@steadily
def run(
    experiment: Experiment,
    folder: str | Path,
    *,
    engine: str | Engine = "auto",
    workers: int | None = None,
    save_every: float = SAVE_EVERY,
    located: Callable[[FederatedData], FederatedData] | None = None,
    keep_states: bool = True,
    **session: Any,
) -> Generator[Event, None, None]:
    """Run an experiment in a folder, or resume it there; yields events.

    engine, workers  where clients run, as for `undrift.engines.engine`
    save_every       seconds between two checkpoints, and so the most work that a crash loses
    located          gives the data to run on, from those of the experiment, if they are elsewhere
    keep_states      whether trials that are done keep their last state, to extend and fork them
    session          more entries for this session in environment.json

    You may leave the loop at any event: the run is saved, and the next call resumes it.
    """
    if not save_every >= 0:
        raise UndriftError(f"save_every={save_every}: must be a number of seconds >= 0")
    if located is None:
        refuse_deployment(Path(folder))
    wanted = make_engine(engine, workers)
    with own.blamed():
        task, data = experiment.check()
        first = task, located(data) if located else data
    _refuse_unfit(experiment, Path(folder), *first)
    place = RunFolder(Path(folder), experiment, *first, command=session.get("command", ""))
    with closing(wanted), place as files:
        trials = [
            TrialRun(files, made, seed, save_every, keep_states)
            for seed in experiment.seeds
            for made in experiment.algorithms
        ]
        left = [trial for trial in trials if not trial.done()]
        files.sums.write()
        for wrong in files.notes:
            yield Event("note", note=wrong)
        if not left:
            files.sort()
            yield Event("note", note=f"{folder} is complete; there is nothing left to run")
            return
        chosen, prepared = _engine(files, wanted, first, experiment)
        hints = [] if files.sessions else [first[1].note, *advice(experiment, first[1])]
        session |= {"mixed": True} if prepared.mixed else {}
        note = files.begin(engine=prepared.about, rounding=prepared.rounding, **session)
        yield Event("start", note=prepared.about)
        for one in filter(None, (note, *hints)):
            yield Event("note", note=one)
        for trial in trials:
            if trial not in left:
                last = files.metrics.tally.stop(trial.place) or experiment.rounds
                yield trial.event("done", last)
        for seed, same_seed in groupby(left, key=lambda trial: trial.seed):
            with own.blamed():
                if seed == experiment.seeds[0]:
                    task, data = first
                else:
                    task, data = experiment.prepare(seed)
                    data = located(data) if located else data
            for trial in same_seed:
                with own.blamed(trial.where, repr(trial.algorithm)):
                    yield from trial.go(task, data, chosen)
        files.sort()
        files.log("all trials are done")


def _refuse_unfit(experiment: Experiment, folder: Path, task: Task, data: FederatedData) -> None:
    """Raise if a forked run is about to be extended by an algorithm that cannot start there."""
    path, origin = folder / RunFile.EXPERIMENT, experiment.origin
    if origin is None or not path.exists():
        return
    if len(read_experiment(path)["algorithms"]) < len(experiment.algorithms):
        with own_code(folder):
            source = algorithm(origin.algorithm)
        refuse_unfit(experiment, source, task, data)


def _engine(
    files: RunFolder,
    wanted: Engine,
    first: tuple[Task, FederatedData],
    experiment: Experiment,
) -> tuple[Engine, Prepared]:
    """The engine and how it runs; raises if it rounds otherwise than in earlier sessions."""
    chosen = wanted
    if isinstance(wanted, Auto):
        chosen = make_engine(engine_of(files.sessions), wanted.workers)
    prepared = chosen.prepare(*first, experiment.local)
    if files.sessions and files.sessions[0].get("rounding") != prepared.rounding:
        raise UndriftError(
            f"{files.folder} was begun with {files.sessions[0].get('engine')}, and this would be "
            f"{prepared.about}: results would differ in rounding; make the same engine possible, "
            "or choose another folder"
        )
    return chosen, prepared


def engine_of(sessions: Sequence[Row]) -> str:
    """Name of the engine with the rounding of a run's earlier sessions; "auto" if none."""
    kinds = {"compiled": "compiled", "python": "threads"}
    return kinds.get(sessions[0].get("rounding", ""), "auto") if sessions else "auto"


@dataclass
class TrialRun:
    """One trial in a run directory: its rows, checkpoints, failure and final model."""

    files: RunFolder
    algorithm: Algorithm
    seed: int
    save_every: float
    keep_states: bool
    name: str = field(init=False)
    folder: Path = field(init=False)
    playing: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = self.files.folder
        self.name = trial_name(run, self.files.experiment, self.algorithm, self.seed)
        self.folder = trial_folder(run, self.name)

    @property
    def place(self) -> TrialKey:
        return repr(self.algorithm), self.seed

    @property
    def model(self) -> Path:
        """The file with the final model, written last: with all rows it marks the trial as done."""
        return model_file(self.files.folder, self.name)

    def done(self) -> bool:
        """Whether the trial is complete and undamaged; if so, all its results get a checksum."""
        failure, tally = self.files.failure(self.place), self.files.metrics.tally
        if failure is None and not self.model.exists():
            return False
        end = tally.stop(self.place) or self.files.experiment.rounds
        last = failure["round"] if failure else end
        there = tally.rounds(self.place)
        if not self._measured(last) or (failure and last not in there):
            if failure or not self._measured(max(there, default=0)):  # else it was extended
                self.notes.append(
                    f"{self.name} was done, but some of its rows are missing in {RunFile.METRICS}"
                )
            return False
        if failure:
            self.files.sums.cover_failure(failure)
        elif wrong := self.files.sums.cover_model(self.model):
            self.notes.append(f"{self.model} {wrong}; it is computed again")
            return False
        self.files.sums.rows[self.place] = tally.sums(self.place, last)
        return True

    def go(self, task: Task, data: FederatedData, engine: Engine) -> Iterator[Event]:
        """Train from the last checkpoint to the end, or until the caller closes this generator."""
        trial = Trial(self.files.experiment, self.algorithm, self.seed, task, data, engine)
        was_done, state = self.model.exists(), self._newest()
        if was_done and state is None:
            self.notes.append(f"{self.name} has no checkpoint left; it runs again from the start")
        state = state or self._first(trial)
        reached = state.t

        def unmeasured(waiting: int) -> bool:
            """Delay a first Ctrl-C from the end of a round until its row is written: the state can
            only be saved together with its row. A second one interrupts at once."""
            return state.t > reached and not waiting

        try:
            self.files.rewind(self.place, reached, self.model)
            for note in self.notes:
                self.files.log(note)
                yield self.event("note", note=note)
            self.files.log(f"{self.name} begins after round {reached}")
            yield self.event("begin", reached)
            metrics, saved = self.files.metrics, time.monotonic()
            before = metrics.rows(self.place) if self.files.experiment.stop else []
            steps = trial.follow(state, metrics.tally.seconds(self.place), before)
            while True:
                self.playing = reached + 1
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
            self.playing = reached
            self._finish(trial, state)
        except BaseException:
            if state.t == reached and not trial.failure:  # else the state is ahead of its rows
                with suppress(UndriftError):  # raise the first error, not this one
                    self._save(trial, state)
            raise
        finally:
            state.close()
        self._tidy()
        yield self.event("end", reached, note=trial.failure, stopped=trial.stopped)

    def event(self, kind: Kind, round: int = 0, **more: Any) -> Event:
        """An event of this trial."""
        name = repr(self.algorithm)
        return Event(kind, name, self.files.labels[name], self.seed, round, **more)

    def where(self) -> str:
        """Which trial this is, and in which round, for errors."""
        round = f"round {self.playing} of " if self.playing else ""
        return f"{round}{self.files.labels[repr(self.algorithm)]}, seed {self.seed}"

    def _first(self, trial: Trial) -> State:
        """The state before the trial's first round, if there is no checkpoint."""
        shutil.rmtree(self.folder, ignore_errors=True)
        origin = self.files.experiment.origin
        if origin is None:
            return trial.start(self.folder)
        where = (self.files.folder, self.seed)
        return first_state(origin, *where, self.algorithm, trial.task, self.folder)

    def _finish(self, trial: Trial, state: State) -> None:
        """Write the failure, or the last checkpoint and then the final model; keep one state."""
        if trial.failure:
            self.files.end(self.place, state.t, trial.failure)
            self.files.log(f"{self.name} ends in round {state.t}: {trial.failure}")
        else:
            self._save(trial, state)
            folder, clients = self.files.folder, trial.meter.clients
            if trial.meter.of_clients:
                write_clients(folder / RunFile.CLIENTS, self.place, clients.table(state))
            if trial.data.held_out:
                write_clients(folder / RunFile.VALIDATION, self.place, clients.validation(state))
            self._deploy(trial, state)
            stop = f", stopped after round {state.t}: {trial.stopped}" if trial.stopped else ""
            self.files.log(f"{self.name} is done{stop}")
        for old in checkpoint_files(self.folder)[1:]:
            with writing(old):
                old.unlink()

    def _tidy(self) -> None:
        """Remove the last state of the trial, which is done, if it is not to be kept; else drop the
        records of older states from its files, if they are the most."""
        if not self.keep_states:
            shutil.rmtree(self.folder, ignore_errors=True)
        for path in checkpoint_files(self.folder)[:1]:
            with suppress(UndriftError):  # `undrift prune` tries it again
                dead, live = dead_bytes(path)
                if dead > live:
                    checkpoint.compact(path)

    def _deploy(self, trial: Trial, state: State) -> None:
        """Write the final model."""
        x = state.server.x if self.algorithm.deploys == "cloud" else state.server.xbar
        tensors = trial.task.parameters(x) | trial.task.unpack(state.buffers)
        facts = about(self.files.experiment, self.algorithm, self.seed, state.t, trial.data)
        copies = {name: t.detach().cpu().clone() for name, t in tensors.items()}
        content = serialize(copies, metadata(facts))
        with writing(self.model):
            self.model.parent.mkdir(exist_ok=True)
        replace_file(self.model, content)
        self.files.sums.cover(self.model, content)
        self.files.seal(self.place, state.t)

    def _save(self, trial: Trial, state: State) -> None:
        """Write a checkpoint, and keep the one before it in case this one is damaged.

        A kill between any two steps is safe. Rows are synced first: those before a checkpoint are
        not measured again. Older records and files go only when the new checkpoint is on disk.
        """
        path = checkpoint_file(self.folder, state.t)
        if path.exists() or state.t == 0:
            return
        with uninterrupted():  # or a second Ctrl-C would abort the save that the first one caused
            state.notes = trial.meter.notes()
            self.files.metrics.sync()
            checkpoint.save(state, path)
            self.files.seal(self.place, state.t)
            _, *older = checkpoint_files(self.folder)
            checkpoint.keep(state, older[:1])
            # A kill during a save leaves a partial file.
            for old in [*older[1:], *self.folder.glob(".round-*.partial")]:
                with writing(old):
                    old.unlink()

    def _newest(self) -> State | None:
        """The newest undamaged state with all its rows; notes say why newer ones are not used."""
        notes = self.notes
        for path in checkpoint_files(self.folder):
            if not self._measured(round_of(path)):
                notes.append(f"{path}: earlier rows of {RunFile.METRICS} are missing")
            else:
                try:
                    return _readable(checkpoint.load(path))
                except Damaged as error:
                    notes.append(str(error))
            notes[-1] += "; resuming from the one before it"
            with writing(path):
                path.replace(path.with_suffix(".unused"))
        return None

    def _measured(self, t: int) -> bool:
        """Whether all rows up to a round are there."""
        experiment = self.files.experiment
        first = experiment.origin.round + 1 if experiment.origin else 1
        due = {one for one in range(first, t + 1) if experiment.evaluates(one)}
        return due <= self.files.metrics.tally.rounds(self.place)


def _readable(state: State) -> State:
    """The state, if all client records can be read: found out later, the older checkpoint to resume
    from could be gone."""
    try:
        for store in (state.clients, state.models):
            for _ in store.values() if store is not None else ():
                pass
    except BaseException:
        state.close()
        raise
    return state
