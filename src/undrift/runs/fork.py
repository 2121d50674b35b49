"""Forks: new runs that start from the state of another run."""

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
from undrift.federation.rounds import State
from undrift.runs import checkpoint
from undrift.runs.folder import RunFolder, trial_name
from undrift.runs.identity import own_code, refuse_deployment, stored_experiment, stored_sessions
from undrift.runs.layout import checkpoint_files, origin_file, round_of, trial_folder
from undrift.runs.origin import first_state, refuse_unfit
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
    """The experiment of a fork: the other run's settings with these changes.

    algorithms  of the fork
    round       of the other run; the fork starts from the state after it
    source      the algorithm of the other run whose state is used; needed if the run has several
    rounds      last round of the fork; that of the other run if not given
    fresh       whether to take over the model only, and not what algorithms remember
    code        files of the user's own, as for `stored_experiment`
    """
    refuse_deployment(run)
    other = stored_experiment(run, code)
    first = other.origin.round if other.origin else 1
    if not first <= round <= other.rounds:
        raise UndriftError(f"--at {round}: {run} has the rounds {first} to {other.rounds}")
    made = chosen(run, other, source, "--source")
    origin = Origin(other.hash, repr(made), round, fresh=fresh)
    last = other.rounds if rounds is None else rounds
    if last <= round:
        raise UndriftError(f"--rounds {last}: must be more than {round}, where the fork begins")
    new = tuple(algorithm(name) for name in algorithms)
    return replace(other, algorithms=new, rounds=last, origin=origin)


def plant(
    experiment: Experiment, folder: Path, run: Path, command: str = "", code: Sequence[Path] = ()
) -> Iterator[tuple[int, int]]:
    """Write the folder of a fork with the states that it starts from, one for each seed.

    States come from the other run's checkpoints; rounds between a checkpoint and the fork are
    computed again. Yields (seed, round) after each of these.
    """
    other, origin = stored_experiment(run, code), experiment.origin
    if origin is None:
        raise UndriftError("this experiment is not a fork; make one with `forked`")
    with own_code(run, code):
        source = algorithm(origin.algorithm)
    engine = make_engine(engine_of(stored_sessions(run)))  # its rounding is part of the state
    first = experiment.check()
    refuse_unfit(experiment, source, *first)  # before anything is written
    with RunFolder(folder, experiment, *first, command) as files:
        for seed in experiment.seeds:
            path = origin_file(files.folder, seed)
            if path.exists():
                continue
            task, data = first if seed == experiment.seeds[0] else experiment.prepare(seed)
            short = replace(other, rounds=origin.round, every=origin.round, stop=())
            trial = Trial(short, source, seed, task, data, engine)
            state = _nearest(trial_folder(run, trial_name(run, other, source, seed)), origin.round)
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
    """The newest readable state up to a round, copied to memory: the other run's files must not
    change."""
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


def chosen(run: Path, experiment: Experiment, name: str | None, option: str) -> Algorithm:
    """The algorithm of a run with this label or name; the only one if no name is given.

    option  that gives the name, for errors
    """
    known = dict(zip(labels(experiment.algorithms), experiment.algorithms, strict=True))
    if name is None and len(known) == 1:
        return experiment.algorithms[0]
    if name is None:
        raise UndriftError(
            f"{run} has several algorithms; say which with {option}: {', '.join(known)}"
        )
    for made in experiment.algorithms:
        if repr(made) == name:
            return made
    if name not in known:
        raise UndriftError(f"{option}: " + unknown("algorithm of the run", name, known))
    return known[name]
