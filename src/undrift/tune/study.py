"""Study: what is tuned, how, and with which budget; and its file, study.json."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from undrift._version import __version__
from undrift.config import (
    Config,
    UndriftError,
    choice,
    flag,
    member,
    shortened,
    text,
    unknown,
    whole,
)
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import labels
from undrift.measure.stopping import size_of
from undrift.report import require_extras
from undrift.runs.layout import StudyFile
from undrift.runs.own_code import remember, vetted
from undrift.system.files import replace_file, writing
from undrift.tune.knobs import Knob, knobs, refuse_unknown, turned, value
from undrift.tune.space import Plain, space

TRIALS = 20
"""trials of each algorithm, if neither they nor a budget are given"""
FACTOR = 3
"""of halving: one trial in so many goes on to so many times the rounds"""
BUDGETS = ("rounds", "bytes", "flops", "seconds")
GROWS = ("trials", "budget")
"""settings that may be others when a study goes on, but with halving, which they are part of"""

Settings = dict[str, Plain]


@dataclass(frozen=True)
class Arm:
    """One algorithm of a study.

    label       as in tables; `name` is that of its files
    experiment  of this algorithm alone, with its own settings; never with the test data
    """

    label: str
    experiment: Experiment
    knobs: tuple[Knob, ...]

    @property
    def name(self) -> str:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", self.label).strip("_")
        if len(plain) <= 60:
            return plain
        return f"{plain[:48]}_{hashlib.sha256(self.label.encode()).hexdigest()[:8]}"

    @property
    def defaults(self) -> Settings:
        return {knob.name: value(self.experiment, knob) for knob in self.knobs}

    def at(self, settings: Settings, rounds: int | None = None) -> Experiment:
        """The experiment with these settings."""
        made = turned(self.experiment, settings, self.knobs)
        return replace(made, rounds=rounds or made.rounds)


@dataclass(frozen=True)
class Study(Config):
    """The settings of a study.

    experiment   the algorithms, and all that they share; seeds and rounds are those of each trial
    over         setting → its space: {"AdaBest.mu": "log(0.001, 1)"}; if empty, the default ranges
                 of each algorithm, its parts and optimisers, and of the local step size
    trials       of each algorithm; 20 unless there is a budget
    budget       of each algorithm, such as "rounds=5000": no new trial is begun when it is spent
    search       how settings are drawn
    halving      successive halving: of the trials at a number of rounds, the best third goes on to
                 three times as many; `min_rounds` are those of the first, a third if not given
    seed         of the search
    final_seeds  fresh seeds on which the winners are run, with the test data; 0 for none
    """

    _: KW_ONLY
    experiment: Experiment = member(Experiment)
    over: Mapping[str, Any] | None = None
    trials: int | None = whole(None, ge=1, optional=True)
    budget: str | None = text(None, optional=True)
    search: str = choice("random", "tpe", "gp", "cmaes", "grid", "qmc")
    halving: bool = flag(False)
    min_rounds: int | None = whole(None, ge=1, optional=True)
    seed: int = whole(0, ge=0)
    final_seeds: int = whole(3, ge=0)
    limit: tuple[str, float] = field(init=False, repr=False, compare=False)
    """what is limited, and to how much"""
    arms: tuple[Arm, ...] = field(init=False, repr=False, compare=False)
    """the algorithms, each with its knobs"""

    def __post_init__(self) -> None:
        super().__post_init__()
        over = {} if self.over is None else self.over
        if not isinstance(over, Mapping):
            self.refuse('give a table, such as {"local.lr": "log(0.01, 1)"}', over=over)
        object.__setattr__(self, "over", {name: space(one) for name, one in over.items()})
        if not self.experiment.validation:
            raise UndriftError(
                "settings are chosen on validation clients, and there are none; give --validation "
                "10 (validation = 10 in a file)"
            )
        if self.min_rounds and self.min_rounds > self.experiment.rounds:
            self.refuse(
                f"there are {self.experiment.rounds} rounds in all", min_rounds=self.min_rounds
            )
        object.__setattr__(self, "limit", self._limit())
        object.__setattr__(self, "arms", self._arms())

    @classmethod
    def from_toml(
        cls, path: str | Path, changes: Mapping[str, Any] | None = None, **settings: Any
    ) -> Study:
        """Read a study from the TOML file of an experiment, with a table [tune] for the rest.

        changes   settings of the experiment to replace, as for `Experiment.from_toml`
        settings  of the study, instead of those in the file
        """
        experiment = Experiment.from_toml(path, changes, flag="--set ")
        table = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("tune", {})
        known = [one.name for one in fields(cls) if one.init and one.name != "experiment"]
        for name in table if isinstance(table, dict) else ["tune"]:
            if name not in known:
                raise UndriftError(f"{path}, [tune]: {unknown('setting', name, known)}")
        try:
            return cls(experiment=experiment, **table | settings)
        except UndriftError as error:
            raise UndriftError(f"{path}: {error}") from None

    def _limit(self) -> tuple[str, float]:
        if self.budget is None:
            return "rounds", float("inf")
        what, _, most = (part.strip() for part in self.budget.partition("="))
        try:
            number = float(most)
        except ValueError:
            number = size_of(most) if what == "bytes" else 0.0
        if what not in BUDGETS or not number > 0:
            such = ", ".join(BUDGETS)
            self.refuse(f"write rounds=5000; one of {such}, in all trials", budget=self.budget)
        return what, number

    def _arms(self) -> tuple[Arm, ...]:
        assert self.over is not None
        algorithms = self.experiment.algorithms
        alone = [replace(self.experiment, algorithms=(one,), test=False) for one in algorithms]
        refuse_unknown(alone, self.over)
        both = zip(labels(algorithms), alone, strict=True)
        made = tuple(Arm(name, one, knobs(one, self.over)) for name, one in both)
        for arm in made:
            if not arm.knobs:
                raise UndriftError(
                    f"nothing of {arm.label} is named to be varied; add such as "
                    "--over local.lr=log(0.01,1), or leave the algorithm out"
                )
        return made

    @property
    def most(self) -> float:
        """Trials of each algorithm."""
        if self.trials is None:
            return TRIALS if self.budget is None else float("inf")
        return self.trials

    @property
    def rungs(self) -> tuple[int, ...]:
        """Rounds after which a trial stops or goes on; the last are those of the experiment."""
        whole_ = self.experiment.rounds
        if not self.halving:
            return (whole_,)
        least = self.min_rounds or -(-whole_ // FACTOR)
        found = [whole_]
        while (fewer := -(-found[-1] // FACTOR)) >= least and FACTOR ** len(found) <= self.most:
            if fewer == found[-1]:
                break
            found.append(fewer)
        return tuple(found[::-1])

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """The smallest seeds that tuning does not use."""
        used = self.experiment.seeds
        return tuple(islice((seed for seed in count() if seed not in used), self.final_seeds))

    def final(self, arm: Arm, settings: Settings) -> Experiment:
        """The experiment that shows what settings are worth: fresh seeds, and the test data."""
        made = arm.at(settings)
        return replace(made, test=self.experiment.test, seeds=self.fresh_seeds or made.seeds)

    def plain(self) -> dict[str, Any]:
        """All settings as plain text and numbers."""
        names = [one.name for one in fields(self) if one.init and one.name != "experiment"]
        own = {name: getattr(self, name) for name in names}
        own["over"] = {name: _written(one) for name, one in own["over"].items()}
        return own


def _written(given: Any) -> Any:
    return list(given.values) if given.kind == "values" else str(given)


Kind = Literal["tune", "sweep"]


def lock(folder: Path) -> FileLock:
    """The lock under which a study's files are written; waits for it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".study.lock", thread_local=False)


def begin(folder: Path, kind: Kind, experiment: Experiment, settings: dict[str, Any]) -> None:
    """Write study.json, or raise if the folder holds another study, or its page cannot be drawn."""
    require_extras("a study's page", ("matplotlib",))
    path = folder / StudyFile.STUDY
    new: dict[str, Any] = {"format": 1, "kind": kind, "version": __version__}
    new |= {"experiment": experiment.resolved(), "settings": settings}
    remember(new["experiment"].get("code", {}))
    with lock(folder), writing(folder):
        if path.exists():
            _refuse_another(folder, read(folder), new)
        elif any(not one.name.startswith(".") for one in folder.iterdir()):
            raise UndriftError(f"{folder} has other files in it; choose another folder with --out")
        replace_file(path, (json.dumps(new, indent=1) + "\n").encode())


def _refuse_another(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    if old["kind"] != new["kind"]:
        raise UndriftError(f"{folder} is from undrift {old['kind']}; choose another with --out")
    for part in ("experiment", "settings"):
        for key in old[part].keys() | new[part].keys():
            was, now = old[part].get(key), new[part].get(key)
            grows = key == "final_seeds" or (key in GROWS and not old[part].get("halving"))
            if was != now and not (part == "settings" and grows):
                raise UndriftError(
                    f"{folder} holds another study: its {key} is {shortened(was)}, not "
                    f"{shortened(now)}; choose another folder with --out"
                )


def read(folder: Path) -> dict[str, Any]:
    """The content of study.json."""
    path = folder / StudyFile.STUDY
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] == 1 and isinstance(found["settings"], dict):
            return dict(found)
    except FileNotFoundError:
        raise UndriftError(f"{str(folder)!r} is not a study: it has no {StudyFile.STUDY}") from None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UndriftError(f"{path} cannot be read; restore it from a backup")


def stored(folder: Path, code: Sequence[Path] = ()) -> tuple[Kind, Experiment, dict[str, Any]]:
    """Kind, experiment and other settings of a study on disk.

    code  the user's own files that it may execute, beside those that the user ran before
    """
    found = read(folder)
    names = {one.name for one in fields(Experiment)}
    given = {name: one for name, one in found["experiment"].items() if name in names}
    with vetted(folder, found["experiment"].get("code", {}), {}, code):
        return found["kind"], Experiment(**given), found["settings"]
