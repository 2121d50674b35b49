"""The trials of a study on disk: Optuna's journal, one study in it for each algorithm.

Every change is made under the study's lock, which the system releases when a process is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undrift.runs.layout import StudyFile
from undrift.system.extras import require
from undrift.system.files import writing
from undrift.system.lock import Lock, holder
from undrift.tune.space import Space
from undrift.tune.study import Arm, Settings, lock


def trial_name(arm: Arm, number: int) -> str:
    """The name of a trial's run directory."""
    return f"{arm.name}-{number:04d}"


@dataclass(frozen=True)
class Result:
    """What a trial had after some rounds; `objective` is None if it failed."""

    rounds: int
    objective: float | None
    seeds: tuple[float | None, ...]
    failure: str | None
    cost: dict[str, float]


@dataclass(frozen=True)
class Record:
    """One trial: its settings, and its results by rounds."""

    number: int
    settings: Settings
    results: dict[int, Result]
    frozen: Any

    @property
    def last(self) -> Result | None:
        """The result after the most rounds."""
        return self.results[max(self.results)] if self.results else None


class Unlocked:
    """Stands for the journal's own lock, which a killed process would leave behind."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


class Store:
    """The trials of all algorithms of a study.

    lower  whether less is better
    """

    def __init__(self, folder: Path, arms: tuple[Arm, ...], lower: bool) -> None:
        self.optuna = require("optuna", "tune", "undrift tune")
        self.optuna.logging.set_verbosity(self.optuna.logging.WARNING)
        journal = require("optuna.storages.journal", "tune", "undrift tune")
        self.folder, self.lower = folder, lower
        self._lock = lock(folder)

        with self.locked():
            backend = journal.JournalFileBackend(str(folder / StudyFile.JOURNAL), Unlocked())
            self.storage = self.optuna.storages.JournalStorage(backend)
            self.ids = {arm.label: self._study(arm.label) for arm in arms}

    @property
    def direction(self) -> Any:
        directions = self.optuna.study.StudyDirection
        return directions.MINIMIZE if self.lower else directions.MAXIMIZE

    def _study(self, name: str) -> int:
        try:
            return int(self.storage.get_study_id_from_name(name))
        except KeyError:
            return int(self.storage.create_new_study([self.direction], name))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside the block, no other process changes the study."""
        with self._lock, writing(self.folder):
            path = self.folder / StudyFile.JOURNAL
            if path.exists():
                content = path.read_bytes()
                if not content.endswith(b"\n"):  # a line that a kill left half
                    os.truncate(path, content.rfind(b"\n") + 1)
            yield

    def records(self, arm: Arm) -> list[Record]:
        """The trials of an algorithm, in their order."""
        found = self.storage.get_all_trials(self.ids[arm.label], deepcopy=False)
        return [_record(one) for one in found]

    def add(self, arm: Arm, settings: Settings, attributes: dict[str, Any]) -> Record:
        """A new trial, in one write."""
        make = self.optuna.trial.create_trial
        new = make(
            state=self.optuna.trial.TrialState.RUNNING,
            params=settings,
            distributions={knob.name: self.distribution(knob.space) for knob in arm.knobs},
            system_attrs=attributes,
        )
        self.storage.create_new_trial(self.ids[arm.label], new)
        return self.records(arm)[-1]

    def put(self, record: Record, result: Result) -> None:
        """Note a result; the last write is the one that counts."""
        key = record.frozen._trial_id
        self.storage.set_trial_intermediate_value(key, result.rounds, self.value(result))
        self.storage.set_trial_user_attr(key, f"after {result.rounds}", vars(result))

    def close(self, record: Record, complete: bool) -> None:
        """Note that a trial will not go on; an earlier process may have done so."""
        key = record.frozen._trial_id
        if record.last is None or self.storage.get_trial(key).state.is_finished():
            return
        states = self.optuna.trial.TrialState
        self.storage.set_trial_state_values(
            key,
            states.COMPLETE if complete else states.PRUNED,
            [self.value(record.last)],
        )

    def value(self, result: Result) -> float:
        """The objective; of a failure, the worst."""
        if result.objective is not None:
            return result.objective
        return float("inf") if self.lower else 0.0

    def finals(self, arm: Arm) -> dict[str, Any]:
        """Results on fresh seeds, by the hash of their experiment."""
        return dict(self.storage.get_study_user_attrs(self.ids[arm.label]))

    def put_final(self, arm: Arm, name: str, result: dict[str, Any]) -> None:
        self.storage.set_study_user_attr(self.ids[arm.label], name, result)

    def distribution(self, values: Space) -> Any:
        """A space as Optuna has it."""
        kinds = self.optuna.distributions
        match values.kind:
            case "values":
                return kinds.CategoricalDistribution(values.values)
            case "int":
                return kinds.IntDistribution(int(values.low), int(values.high))
        return kinds.FloatDistribution(values.low, values.high, log=values.kind == "log")

    def claim(self, name: str) -> Lock:
        """The right to run a trial, until it is closed or the process ends."""
        return Lock(self._claims / name)

    def claimed(self, name: str) -> bool:
        """Whether a process is at a trial."""
        return holder(self._claims / name) is not None

    @property
    def _claims(self) -> Path:
        return self.folder / ".claims"


def _record(frozen: Any) -> Record:
    kept = [one for key, one in frozen.user_attrs.items() if key.startswith("after ")]
    results = [Result(**one | {"seeds": tuple(one["seeds"])}) for one in kept]
    return Record(frozen.number, dict(frozen.params), {one.rounds: one for one in results}, frozen)
