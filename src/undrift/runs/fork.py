"""Forks: another run's state, made the start of a new run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from undrift.config import UndriftError, unknown
from undrift.core import Algorithm
from undrift.engines import engine as make_engine
from undrift.experiment.experiment import Experiment
from undrift.experiment.origin import Origin
from undrift.experiment.registry import algorithm, labels
from undrift.federation.rounds import State, start
from undrift.runs import checkpoint
from undrift.runs.folder import RunFolder, trial_name
from undrift.runs.identity import own_code, stored_experiment, stored_sessions
from undrift.runs.layout import checkpoint_files, origin_file, round_of, trial_folder
from undrift.runs.origin import carry, first_state
from undrift.runs.runner import engine_of
from undrift.runs.trial import Trial
from undrift.system.files import writing


def forked(
    run: Path,
    algorithms: Sequence[str],
    *,
    round: int,
    source: str | None = None,
    rounds: int | None = None,
    fresh: bool = False,
    code: Sequence[Path] = (),
) -> Experiment:
    """The experiment that goes on from another run's state.

    algorithms  those of the new run
    round       of the other run, after which it starts
    source      the algorithm of the other run whose state it is; needed if that has several
    rounds      the last round of the new run; that of the other one if not given
    fresh       whether only the model is taken over
    code        files of the user's own, as for `stored_experiment`
    """
    other = stored_experiment(run, code)
    first = other.origin.round if other.origin else 1
    if not first <= round <= other.rounds:
        raise UndriftError(f"--at {round}: {run} has the rounds {first} to {other.rounds}")
    made = _chosen(run, other, source)
    origin = Origin(other.hash, repr(made), round, fresh=fresh)
    last = other.rounds if rounds is None else rounds
    if last <= round:
        raise UndriftError(f"--rounds {last}: must be more than {round}, where the fork begins")
    new = tuple(algorithm(name) for name in algorithms)
    return replace(other, algorithms=new, rounds=last, origin=origin)


def plant(
    experiment: Experiment, folder: Path, run: Path, command: str = "", code: Sequence[Path] = ()
) -> Iterator[tuple[int, int]]:
    """Make the folder of a fork with the states that it starts from, yielding (seed, round) done.

    States come from the other run's checkpoints; what lies between one of them and the origin is
    computed again.
    """
    other, origin = stored_experiment(run, code), experiment.origin
    if origin is None:
        raise UndriftError("this experiment is no fork; make one with `forked`")
    with own_code(run, code):
        source = algorithm(origin.algorithm)
    engine = make_engine(engine_of(stored_sessions(run)))  # its rounding is part of the state
    first = experiment.check()
    task, data = first
    empty = start(source, task, data, experiment.sampler)
    for made in experiment.algorithms:  # refused before anything is written
        carry(empty, source, made, task, fresh=origin.fresh)
    with RunFolder(folder, experiment, *first, command) as files:
        for seed in experiment.seeds:
            path = origin_file(files.folder, seed)
            if path.exists():
                continue
            task, data = first if seed == experiment.seeds[0] else experiment.prepare(seed)
            short = replace(other, rounds=origin.round, every=origin.round)
            trial = Trial(short, source, seed, task, data, engine)
            state = _nearest(trial_folder(run, trial_name(other, source, seed)), origin.round)
            if state is None and other.origin:
                state = first_state(other.origin, run, seed, source, task)
            state = state or trial.start()
            for done, _ in trial.follow(state):
                yield seed, done.t
            if trial.failure:
                raise UndriftError(f"{run} has no such state on seed {seed}: {trial.failure}")
            state.notes = trial.meter.notes()
            with writing(path.parent):
                path.parent.mkdir(exist_ok=True)
            checkpoint.save(state, path)


def _nearest(folder: Path, round: int) -> State | None:
    """The newest state up to a round that can be read, in memory: its files stay as they are."""
    for path in checkpoint_files(folder):
        if round_of(path) <= round:
            with suppress(UndriftError):
                state = checkpoint.load(path)
                try:
                    clients, models = copy.deepcopy((state.clients, state.models))
                    return replace(state, clients=clients, models=models)
                finally:
                    state.close()
    return None


def _chosen(run: Path, experiment: Experiment, name: str | None) -> Algorithm:
    """The algorithm that a label or a name stands for, or the only one."""
    known = dict(zip(labels(experiment.algorithms), experiment.algorithms, strict=True))
    if name is None and len(known) == 1:
        return experiment.algorithms[0]
    if name is None:
        raise UndriftError(
            f"{run} has several algorithms; say whose state with --source: {', '.join(known)}"
        )
    for made in experiment.algorithms:
        if repr(made) == name:
            return made
    if name not in known:
        raise UndriftError("--source: " + unknown("algorithm of the run", name, known))
    return known[name]
