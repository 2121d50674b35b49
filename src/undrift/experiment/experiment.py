"""An experiment: several algorithms on the same data, cohorts and batches, over several seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.config import Config, UndriftError, at, flag, member, real, shortened, whole
from undrift.config.expressions import parse
from undrift.config.own import code
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.data.partition.partitions import Partition, federate
from undrift.data.partition.split import with_fewer_tests, with_own_tests, without_tests
from undrift.data.source import DataSet, Source
from undrift.experiment.blueprint import Blueprint
from undrift.experiment.origin import Origin
from undrift.experiment.settings import LARGEST, TEXTS, SettingsFile, named, write
from undrift.federation.sampling import FixedSize, Sampler, Urn
from undrift.later import np, torch
from undrift.measure.stopping import StopRule, Target, stop_rules
from undrift.models import Model
from undrift.rng import stream
from undrift.training.losses import PREDICTS, OwnLoss, refuse_unfit, suitable_loss
from undrift.training.work import Local

if TYPE_CHECKING:
    from undrift.training.task import Task


REPORT_ONLY = ("target",)
"""Settings that change only the report, and so are not part of an experiment's identity."""

LATER = ("loss", "client_test", "personal_steps", "test_subset", "stop", "test", "all_updates")
"""settings that earlier versions did not have: with their default, they are no part of the identity
"""


@dataclass(frozen=True)
class Experiment(Config):
    """The settings of an experiment: all that results depend on, but not where it runs.

    rounds, seeds   rounds of each trial; every algorithm runs once for every seed
    every           rounds between two evaluations on the test data
    validation      clients that do not train; the deployed model is evaluated on their samples too
    target          accuracy whose cost in rounds, bytes and FLOPs is reported
    dropout         probability that a client fails to deliver in a round
    all_clients     also evaluate the mean of all clients' last models (costs memory)
    all_updates     also compare the updates of an evaluated round's cohort with those that all
                    clients would have sent (costs time: all clients train for it)
    fairness        also measure how accuracy varies over the clients' own samples (costs time)
    client_test     share of each client's samples that it does not train on, but is measured on:
                    how accuracy varies over clients then is that on these samples
    personal_steps  also measure clients after so many local steps of SGD from the deployed model,
                    at most 100 clients, drawn once
    test_subset     evaluate on so many of the test samples, always the same; 0: on all
    test            whether to evaluate on the test data at all; not while settings are chosen
    origin          state of another run from which all trials start, set by `undrift fork`
    loss            of a batch, by name or your own; by default the usual one for the targets
    stop            rules that end a trial before its last round, judged at each evaluation

    Objects may be given as text: `sampler="Uniform(5)"`, or `model="./nets.py:Net"` for your own.
    """

    _: KW_ONLY
    algorithms: tuple[Algorithm, ...]
    data: DataSet = member(DataSet)
    partition: Partition = member(Partition)
    model: Model = member(Model)
    local: Local = member(Local)
    sampler: Sampler = member(Sampler)
    rounds: int = whole(100, ge=1)
    seeds: tuple[int, ...] = (0,)
    every: int = whole(5, ge=1)
    validation: int = whole(0, ge=0)
    target: float | None = real(None, gt=0, le=1, optional=True)
    dropout: float = real(0.0, ge=0, lt=1)
    all_clients: bool = flag(False)
    fairness: bool = flag(False)
    origin: Origin | None = member(Origin, None, optional=True)
    loss: str | OwnLoss | None = None
    client_test: float = real(0.0, ge=0, lt=1)
    personal_steps: int = whole(0, ge=0)
    test_subset: int = whole(0, ge=0)
    stop: tuple[StopRule, ...] = ()
    test: bool = flag(True)
    all_updates: bool = flag(False)

    def __post_init__(self) -> None:
        for name in TEXTS:
            if name != "loss" or self.loss is not None:
                object.__setattr__(self, name, named(name, getattr(self, name)))
        if isinstance(self.origin, str):
            with at("origin"):
                made = parse(self.origin, {"Origin": Origin}, "origin")
            object.__setattr__(self, "origin", made)
        if isinstance(self.origin, Origin):
            from undrift.experiment.registry import algorithm

            algorithm(self.origin.algorithm)  # of which own code is found and vetted here
        super().__post_init__()
        for name, such in ("algorithms", '["fedavg", "adabest"]'), ("seeds", "[0, 1, 2]"):
            if not isinstance(getattr(self, name), list | tuple):
                self.refuse(f"give a list, such as {such}", **{name: getattr(self, name)})
        object.__setattr__(self, "algorithms", _algorithms(self.algorithms))
        object.__setattr__(self, "seeds", tuple(self.seeds))
        right = all(type(seed) is int and 0 <= seed <= LARGEST for seed in self.seeds)
        if not right or not self.seeds or len(set(self.seeds)) < len(self.seeds):
            self.refuse("give different whole numbers >= 0", seeds=list(self.seeds))
        object.__setattr__(self, "stop", stop_rules(self.stop))
        for rule in self.stop:
            if getattr(rule, "on", "") == "validation" and not self.validation:
                self.refuse("hold out clients for it, such as validation=10", stop=rule)
            if getattr(rule, "on", "") == "test" and not self.test:
                why = "settings are not chosen on test data; stop on='validation'"
                self.refuse(why, stop=rule)
        if self.all_updates and all(made.regime != "federated" for made in self.algorithms):
            why = "no algorithm here has cohorts to compare with all clients; leave it out"
            self.refuse(why, all_updates=True)
        self._refuse_too_few_clients()

    def _refuse_too_few_clients(self) -> None:
        """Raise if a partition with a known number of clients has too few to hold out and draw."""
        clients = getattr(self.partition, "clients", None)
        if clients is None:
            return
        shown: dict[str, Any] = {"partition": self.partition}
        if self.validation:
            shown["validation"] = self.validation
        left = clients - self.validation
        if left < 1:
            self.refuse(f"must leave one of {clients} clients to train", **shown)
        if isinstance(self.sampler, FixedSize) and self.sampler.clients > left:
            self.refuse(f"use at most {left} clients per round", sampler=self.sampler, **shown)

    @classmethod
    def from_toml(
        cls, path: str | Path, changes: Mapping[str, Any] | None = None, *, flag: str = ""
    ) -> Experiment:
        """Read an experiment from a TOML file, whose keys are the fields of this class.

        A table [tune] in it is for `undrift tune`, and of no account here.

        changes  settings to replace, such as `{"rounds": 20, "local.lr": 0.05}`; None restores the
                 default
        flag     prefix of a change in error messages, such as "--set "
        """
        known = {f.name: f.default is MISSING for f in fields(cls)}
        file = SettingsFile(path, known | {"tune": False})
        file.change(changes or {}, flag)
        file.values.pop("tune", None)
        return file.build(cls)

    def to_toml(self) -> str:
        """The experiment as TOML for `from_toml`, with all settings, in a fixed order."""
        local = {field.name: getattr(self.local, field.name) for field in fields(self.local)}
        return write(self.resolved() | {"local": local, "code": None})

    def resolved(self) -> dict[str, Any]:
        """All settings as plain text and numbers, enough to repeat the experiment."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in (*TEXTS, "origin"):
            if not isinstance(plain[name], str | None):
                plain[name] = repr(plain[name])
        plain["algorithms"] = [repr(one) for one in self.algorithms]
        plain["seeds"] = list(self.seeds)
        plain["stop"] = list(map(repr, self.stop)) or ()
        texts = [*plain["algorithms"], *(plain[name] or "" for name in TEXTS), *plain["stop"]]
        if used := code([*texts, self.origin.algorithm if self.origin else ""]):
            plain["code"] = used
        defaults = {field.name: field.default for field in fields(self) if field.name in LATER}
        return {k: v for k, v in plain.items() if k not in defaults or v != defaults[k]}

    @property
    def hash(self) -> str:
        """The experiment's identity: a hash of all settings except REPORT_ONLY."""
        return settings_hash(self.resolved())

    def evaluates(self, round: int) -> bool:
        """Whether a row is due after this round."""
        return round % self.every == 0 or round == self.rounds

    @property
    def personal_work(self) -> Local | None:
        """The local work before personal results; None if there are none."""
        steps = self.personal_steps
        return replace(self.local, epochs=None, steps=steps) if steps else None

    def prepare(self, seed: int) -> tuple[Task, FederatedData]:
        """The task and the federated data of one seed."""
        blueprint, data = self.plan(seed)
        try:
            return blueprint.build(seed), data
        except UndriftError as error:
            why = str(error).removeprefix(f"{self.model!r}: ")
            raise UndriftError(f"{self.model!r} cannot train on {self.data!r}: {why}") from None

    def plan(self, seed: int) -> tuple[Blueprint, FederatedData]:
        """What the task is made from, and the federated data of one seed."""
        source = self.data.load(seed)
        data = federate(source, self.partition, seed, self.validation)
        if self.client_test:
            data = with_own_tests(data, self.client_test, seed)
        if self.test_subset:
            data = with_fewer_tests(data, self.test_subset)
        if not self.test:
            data = without_tests(data)
        usual = suitable_loss(data.targets)
        chosen = usual if self.loss is None else self.loss
        if isinstance(chosen, str):
            refuse_unfit(chosen, data.targets)
        predicts, shape = PREDICTS.get(usual), tuple(data.example.shape[1:])
        return Blueprint(self.model, chosen, predicts, shape, source.classes, _words(source)), data

    def check(self) -> tuple[Task, FederatedData]:
        """Raise if the experiment cannot work; returns the task and data of the first seed."""
        from undrift.federation.rounds import require_quorum
        from undrift.keyed import Keyed

        task, data = self.prepare(self.seeds[0])
        for made in self.algorithms:
            require_quorum(made, self.sampler, len(data))
        for rule in self.stop:
            if isinstance(rule, Target) and not task.predicts:
                self.refuse("there is no accuracy; use Patience, which judges losses", stop=rule)
        rng = stream(self.seeds[0], "cohort", 1)
        everyone = np.arange(len(data))
        labels = data.label_counts if self.sampler.reads_labels else None
        self.sampler.draw(Urn(1, everyone, data.sizes, rng, self.sampler.start(len(data)), labels))
        samples = int(data.sizes.sum())
        if self.local.fills and self.local.batch_size > samples:
            self.refuse(
                f"a batch is larger than the whole training set of {samples} samples and would be "
                f"filled up with copies; give a smaller batch_size, or batching='keep'",
                local=self.local,
            )
        rows = data.rows(int(np.argmax(data.sizes)))[: self.local.batch_size]
        try:
            with Keyed(torch.Generator()):
                task.gradient(task.x0, task.unpack(task.buffers0), *data.batch(rows))
        except Exception as error:  # whatever a model may raise
            inputs = tuple(data.example.shape[1:])
            with_loss = "" if self.loss is None else f", with the loss {self.loss!r}"
            raise UndriftError(
                f"{self.model!r} cannot train on {self.data!r}, whose inputs have the shape "
                f"{inputs}{with_loss}: {error}"
            ) from None
        return task, data


def settings_hash(resolved: Mapping[str, Any]) -> str:
    """The identity of an experiment in its resolved form."""
    text = json.dumps({**resolved, **dict.fromkeys(REPORT_ONLY)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _algorithms(given: Sequence[Algorithm | str]) -> tuple[Algorithm, ...]:
    """The algorithms, from objects or names; raises if one is given twice."""
    from undrift.experiment.registry import algorithm

    found: list[Algorithm] = []
    for position, one in enumerate(given):
        with at("algorithms", position):
            new = algorithm(one) if isinstance(one, str) else one
            if not isinstance(new, Algorithm):
                raise UndriftError(f'{shortened(one)} is not an algorithm, such as "fedavg"')
        if new in found:
            both = found.index(new), position
            raise UndriftError(f"{new!r} is named twice", [("algorithms", one) for one in both])
        found.append(new)
    if not found:
        such = "name at least one algorithm, such as fedavg or adabest"
        raise UndriftError(such, [("algorithms",)])
    return tuple(found)


def _words(source: Source) -> tuple[str, ...]:
    """The vocabulary of a text data set, if known."""
    from undrift.data.text.words import Sequences

    return source.transform.words if isinstance(source.transform, Sequences) else ()
