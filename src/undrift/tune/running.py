"""Runs a study in a folder, alone or beside other processes, from the start or from where it is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.federation.rounds import require_quorum
from undrift.later import np
from undrift.report.read import TrialRecord, read_run
from undrift.report.score import ACCURACY, LOSS, RMSE, Score
from undrift.runs.layout import StudyFile
from undrift.runs.runner import Event as RunEvent
from undrift.runs.runner import run
from undrift.system.lock import Lock
from undrift.training.task import Task
from undrift.tune.schedule import best, last_job, next_job
from undrift.tune.search import draw, refuse_lacking, size
from undrift.tune.store import Record, Result, Store, trial_name
from undrift.tune.study import FACTOR, Arm, Settings, Study, begin

WAIT = 0.2
"""seconds between two looks at what other processes have done"""


@dataclass(frozen=True)
class Event:
    """Something that happened in a study.

    begin   a trial begins, or goes on to more rounds
    run     something happened in its run: `inner`
    trial   it has a result
    final   settings were run on fresh seeds; `final` has the results
    wait    other processes are at all that is left
    end     all is done; `columns` and `notes` are the table

    done, total  rounds of all trials and seeds so far, by all processes, and of the whole study;
                 total is infinite under a budget of anything but rounds or trials
    """

    kind: Literal["begin", "run", "trial", "final", "wait", "end"]
    label: str = ""
    number: int = -1
    settings: Settings | None = None
    rounds: int = 0
    result: Result | None = None
    final: dict[str, Any] | None = None
    inner: RunEvent | None = None
    columns: dict[str, list[str]] | None = None
    notes: tuple[str, ...] = ()
    done: float = 0.0
    total: float = math.inf


@dataclass(frozen=True)
class Work:
    """A trial or a final run that this process has claimed."""

    arm: Arm
    name: str
    experiment: Experiment | UndriftError
    claim: Lock
    record: Record | None
    settings: Settings
    rounds: int


def score_of(experiment: Experiment, task: Task) -> Score:
    """What algorithms are ranked by, here on validation clients."""
    if task.predicts:
        return ACCURACY
    return RMSE if experiment.resolved().get("loss", "mse") == "mse" else LOSS


def tune(study: Study, folder: str | Path, **options: Any) -> Generator[Event, None, None]:
    """Run a study in a folder, or what is left of it; yields events.

    options  those of `undrift.runs.runner.run`: engine, workers, save_every

    Several processes may do so at once. You may leave the loop at any event, or the process may be
    killed: the next call goes on, to the same results.
    """
    from undrift.tune.outcome import write_ledger, write_outcome

    here = Desk(study, Path(folder))
    while (work := here.take()) != "done":
        if isinstance(work, str):
            yield Event("wait")
            time.sleep(WAIT)
            continue
        with closing(work.claim):
            yield from _done(here, work, options)
            with here.store.locked():
                write_ledger(here)
    with here.store.locked():
        columns, notes = write_outcome(here)
    yield Event("end", columns=columns, notes=tuple(notes))


class Desk:
    """A study that is open: where this process gets work, and hands it in."""

    def __init__(self, study: Study, folder: Path) -> None:
        refuse_lacking(study)
        task, _ = study.experiment.check()
        begin(folder, "tune", study.experiment, study.plain())
        self.study, self.folder = study, folder
        self.score = score_of(study.experiment, task)
        self.lower = self.score.lower
        self.store = Store(folder, study.arms, self.lower)

    def take(self) -> Work | Literal["wait", "done"]:
        """Claim the next piece of work; other processes may be at the last ones."""
        with self.store.locked():
            arms = {arm.label: self.store.records(arm) for arm in self.study.arms}
            waiting = False
            for arm in sorted(self.study.arms, key=lambda one: len(arms[one.label])):
                records = arms[arm.label]
                self._close(records)
                if job := next_job(records, self.study.rungs, self.lower, self._busy(arm)):
                    return self._claimed(arm, *job)
                if self._more(arm, records):
                    new = self.store.add(arm, *draw(self.study, arm, records, self.store))
                    return self._claimed(arm, new, self.study.rungs[0])
                if any(map(self._busy(arm), records)):
                    waiting = True
                elif job := last_job(records, self.study.rungs, self.lower):
                    return self._claimed(arm, *job)
                else:
                    for record in records:
                        self.store.close(record, complete=False)
            return "wait" if waiting else self._final(arms)

    def progress(self) -> tuple[float, float]:
        """Rounds of all trials and seeds that are done, and those of the whole study."""
        study, finals = self.study, 0
        with self.store.locked():
            records = [one for arm in study.arms for one in self.store.records(arm)]
            finals = sum(len(self.store.finals(arm)) for arm in study.arms)
        last = study.experiment.rounds * study.final_seeds
        done = sum(one.last.cost["rounds"] for one in records if one.last) + finals * last
        what, most = study.limit
        total = len(study.arms) * 2 * last
        for arm in study.arms:
            seeds, trials = len(study.experiment.seeds), size(study, arm)
            planned = sum(
                (rung - before) * (trials // FACTOR**k) * seeds
                for k, (before, rung) in enumerate(pairwise((0, *study.rungs)))
            )
            total += min(planned, most if what == "rounds" else math.inf)
        return done, max(done, total)

    def _more(self, arm: Arm, records: list[Record]) -> bool:
        """Whether there is budget for another trial."""
        what, most = self.study.limit
        spent = sum(one.last.cost[what] for one in records if one.last)
        return len(records) < size(self.study, arm) and spent < most

    def _close(self, records: list[Record]) -> None:
        """Note which trials are at their end, by failure or with all rounds."""
        for record in records:
            if record.last and (
                record.last.failure is not None or record.last.rounds == self.study.rungs[-1]
            ):
                self.store.close(record, complete=True)

    def _busy(self, arm: Arm) -> Callable[[Record], bool]:
        return lambda record: self.store.claimed(trial_name(arm, record.number))

    def _claimed(self, arm: Arm, record: Record, rounds: int) -> Work:
        name = trial_name(arm, record.number)
        claim = self.store.claim(name)
        made: Experiment | UndriftError
        try:
            made = drawn = arm.at(record.settings, rounds)
            require_quorum(drawn.algorithms[0], drawn.sampler)
        except UndriftError as error:  # a combination that cannot be is a result, too
            made = error
        return Work(arm, name, made, claim, record, record.settings, rounds)

    def _final(self, arms: dict[str, list[Record]]) -> Work | Literal["wait", "done"]:
        """The next run on fresh seeds."""
        waiting = False
        for arm in self.study.arms if self.study.final_seeds else ():
            winner = best(arms[arm.label], self.study.rungs, self.lower)
            done = self.store.finals(arm)
            for settings in [winner.settings, arm.defaults] if winner else []:
                made = self.study.final(arm, settings)
                name = f"{arm.name}-{made.hash}"
                if made.hash in done:
                    continue
                if self.store.claimed(name):
                    waiting = True
                    continue
                claim = self.store.claim(name)
                return Work(arm, name, made, claim, None, settings, made.rounds)
        return "wait" if waiting else "done"


def _done(here: Desk, work: Work, options: dict[str, Any]) -> Iterator[Event]:
    """Do a piece of work and hand it in."""
    final = work.record is None
    folder = here.folder / (StudyFile.FINAL if final else StudyFile.TRIALS) / work.name
    told = (work.arm.label, -1 if work.record is None else work.record.number, work.settings)
    done, total = here.progress()
    yield Event("begin", *told, rounds=work.rounds, done=done, total=total)
    if isinstance(work.experiment, Experiment):
        happening = run(work.experiment, folder, **options)
        with closing(happening):
            for event in happening:
                yield Event("run", *told, rounds=work.rounds, inner=event)
    if work.record is not None:
        result = measured(work, folder, here.score)
        with here.store.locked():
            here.store.put(work.record, result)
        yield Event("trial", *told, rounds=result.rounds, result=result)
    else:
        assert isinstance(work.experiment, Experiment)
        found = tested(folder, here.score)
        with here.store.locked():
            here.store.put_final(work.arm, work.experiment.hash, found)
        yield Event("final", *told, rounds=work.rounds, final=found)


def measured(work: Work, folder: Path, score: Score) -> Result:
    """The result of a trial, from its run directory; a trial that fails on one seed has failed."""
    nothing = dict.fromkeys(("rounds", "bytes", "flops", "seconds"), 0.0)
    if isinstance(work.experiment, UndriftError):
        return Result(work.rounds, None, (), str(work.experiment), nothing)
    (arm,) = read_run(folder).arms
    values = [_validation(arm.curves.get(seed), score, seed in arm.failures) for seed in arm.seeds]
    cost = {
        name: float(sum(np.nan_to_num(curve[name if name != "rounds" else "round"])[-1]
                        for curve in arm.curves.values()))
        for name in nothing
    }  # fmt: skip
    failures = [f"round {one.round}: {one.reason}" for one in arm.failures.values()]
    if not failures and None in values:
        failures = ["the validation result is not finite"]
    sound = [one for one in values if one is not None]
    objective = None if failures else float(np.mean(sound))
    return Result(work.rounds, objective, tuple(values), failures[0] if failures else None, cost)


def _validation(curve: TrialRecord | None, score: Score, failed: bool) -> float | None:
    """The last result on the validation clients."""
    if curve is None or failed:
        return None
    value = float(curve[f"validation_{score.metric}"][-1])
    return (math.sqrt(value) if score.root else value) if math.isfinite(value) else None


def tested(folder: Path, score: Score) -> dict[str, Any]:
    """Results on fresh seeds: seed → result on the test data and on validation clients."""
    (arm,) = read_run(folder).arms
    found: dict[str, Any] = {
        "run": f"{StudyFile.FINAL}/{folder.name}",
        "test": {},
        "validation": {},
    }
    for seed in arm.seeds:
        if arm.finished(seed):
            value = float(score.of(arm.curves[seed])[-1])
            found["test"][str(seed)] = value if math.isfinite(value) else None
            found["validation"][str(seed)] = _validation(arm.curves[seed], score, False)
    found["failures"] = {str(seed): one.reason for seed, one in arm.failures.items()}
    return found
