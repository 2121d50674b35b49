"""What a node does: load its own samples, train, answer. Nothing here knows of the network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from undrift._version import __version__
from undrift.arithmetic import steady
from undrift.config import UndriftError, own
from undrift.config.expressions import parse
from undrift.core import Struct
from undrift.data.federated import FederatedData, described
from undrift.data.partition.split import training_mask
from undrift.deploy.folder import beside
from undrift.deploy.memory import Lost, NodeMemory
from undrift.deploy.wire import Fact, facts_in, pack, unpack
from undrift.experiment.blueprint import Blueprint
from undrift.experiment.registry import algorithm
from undrift.experiment.settings import named
from undrift.measure.clients import OwnScore
from undrift.training.task import Task
from undrift.training.trainer import Trainer, Work, client_rounds, client_survey
from undrift.training.work import Local

if TYPE_CHECKING:
    from flwr.app import RecordDict

Config = Mapping[str, Any]
Load = Callable[[Config], tuple[Any, Any]]
"""A node's settings → its own inputs and targets, as arrays or tensors."""


class OneClient(FederatedData):
    """The samples of one client, under whatever number it has."""

    def rows(self, i: int) -> np.ndarray:
        return self.order

    def own_rows(self, i: int) -> np.ndarray:
        return self.own_tests[0] if self.own_tests else self.order


@dataclass(frozen=True)
class Ask:
    """A question of the server, as facts of a message.

    run, seed    of the trial; with the algorithm they name a client's memory
    t, client    the round, and the number of this client
    accepted     the round of the memory to start from
    floor        the round of the oldest memory that may still be asked for
    algorithm, local, n_mean   the work
    model, loss, predicts, classes, shape, words, parameters   the task
    tests        share of the samples that the client is measured on
    nonce        random, so that no other node can guess the message's number and answer it: Flower
                 compares the sender of a reply with the question, but not with the sender's key
    """

    run: str = ""
    seed: int = 0
    t: int = 0
    client: int = 0
    accepted: int = 0
    floor: int = 0
    algorithm: str = ""
    local: str = ""
    n_mean: float = 0.0
    model: str = ""
    loss: str = ""
    predicts: str = ""
    classes: int = 0
    shape: str = "[]"
    words: str = "[]"
    parameters: int = 0
    tests: float = 0.0
    nonce: str = ""

    @classmethod
    def about(cls, blueprint: Blueprint, parameters: int, tests: float) -> Ask:
        """What all questions about a task have in common."""
        loss = blueprint.loss
        return cls(
            model=repr(blueprint.model),
            loss=loss if isinstance(loss, str) else repr(loss),
            predicts=blueprint.predicts or "",
            classes=blueprint.classes,
            shape=json.dumps(blueprint.shape),
            words=json.dumps(blueprint.words),
            parameters=parameters,
            tests=tests,
        )

    @property
    def place(self) -> str:
        """Names the folder of this client's memory."""
        text = json.dumps([self.run, self.seed, self.algorithm, self.client])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Node:
    """A node that answers one question.

    load    gives its samples, from its settings
    config  its settings
    code    folder with code of the user's own that the experiment names
    """

    load: Load
    config: Config
    code: Path

    def answer(self, kind: str, content: RecordDict) -> RecordDict:
        """The answer to a question; one that cannot be answered says why, in "absent"."""
        answers = {
            "hello": self.hello,
            "train": self.train,
            "survey": self.survey,
            "score": self.score,
        }
        with steady(), own.finding(partial(beside, self.code)):
            try:
                return answers[kind](Ask(**facts_in(content)), content)
            except Lost as lost:
                return pack({"absent": str(lost), "last": lost.last})
            except Exception as error:  # whatever `load` and the model may raise
                return pack({"absent": f"failed: {type(error).__name__}: {error}"})

    def hello(self, ask: Ask, content: RecordDict) -> RecordDict:
        """Who this is, and how many samples it has."""
        data, _ = self._data(ask), self._task(ask)
        claimed = self.config.get("client", self.config.get("partition-id", -1))
        return pack(
            {
                "client": int(claimed),
                "samples": len(data.order),
                "tests": len(data.own_rows(0)),
                "undrift": __version__,
                "torch": torch.__version__,
            }
        )

    def survey(self, ask: Ask, content: RecordDict) -> RecordDict:
        """The first exchange of a round."""
        made, trainer, down, buffers = self._ready(ask, content)
        me = self._memory(ask).at(ask.accepted, made.init_client(down.x))
        up = client_survey(made, trainer, self._work(ask), down, me, buffers)
        return pack(_stamps(ask), up=up)

    def train(self, ask: Ask, content: RecordDict) -> RecordDict:
        """Local training. The new memory is on disk before the upload leaves."""
        made, trainer, down, buffers = self._ready(ask, content)
        memory = self._memory(ask)
        me = memory.at(ask.accepted, made.init_client(down.x))
        memory.settle(ask.accepted, ask.floor)
        (got,) = client_rounds(made, trainer, [(self._work(ask), me)], down, buffers)
        if any(True for _ in got.me.leaves()):
            memory.put(ask.t, got.me)
        facts = {"loss": got.loss, "steps": got.steps, "samples": got.samples}
        return pack(_stamps(ask) | facts, up=got.up, side=Struct(buffers=got.buffers))

    def score(self, ask: Ask, content: RecordDict) -> RecordDict:
        """Score of a model on this client's own samples, after `local` steps if there are any."""
        model = unpack(content, "model")
        local = _local(ask.local) if ask.local else None
        job = OwnScore(self._data(ask), ask.t, ask.seed, local)
        item = (ask.client, model.x, model.buffers)
        sums = job(Trainer(self._task(ask)), item)
        totals = {"right": sums.right.total(), "answers": sums.total.total()}  # not by class
        return pack(_stamps(ask) | {"loss": sums.loss} | totals)

    def _ready(self, ask: Ask, content: RecordDict) -> tuple[Any, Trainer, Struct, Tensor]:
        """The algorithm, a trainer, and what the server sent."""
        buffers: Tensor = unpack(content, "model").buffers
        return algorithm(ask.algorithm), Trainer(self._task(ask)), unpack(content, "down"), buffers

    def _work(self, ask: Ask) -> Work:
        local = _local(ask.local)
        return Work(ask.t, ask.client, ask.seed, self._data(ask), local, ask.n_mean)

    def _data(self, ask: Ask) -> FederatedData:
        """This node's samples; those that it tests on do not train."""
        inputs, targets = self._loaded
        expected, shape = json.loads(ask.shape), list(inputs.shape[1:])
        if len(inputs) != len(targets) or shape != expected:
            raise UndriftError(
                f"load() gave {len(inputs)} inputs, {described(inputs)}, and {len(targets)} "
                f"targets; give as many targets as inputs, each of shape {tuple(expected)}"
            )
        order: np.ndarray = np.arange(len(targets))
        tests: tuple[np.ndarray, ...] = ()
        if ask.tests:
            mask = training_mask(np.zeros(len(order)), 1 - ask.tests, ask.seed, "clients' tests")
            order, tests = order[mask], (order[~mask],)
        ends = np.array([0, len(order)])
        return OneClient(inputs, targets, order, ends, inputs[:0], targets[:0], own_tests=tests)

    @cached_property
    def _loaded(self) -> tuple[Tensor, Tensor]:
        inputs, targets = self.load(self.config)
        return torch.as_tensor(inputs), torch.as_tensor(targets)

    def _task(self, ask: Ask) -> Task:
        """The task; its parameters come with every question."""
        task = Blueprint(
            named("model", ask.model),
            named("loss", ask.loss),
            ask.predicts or None,  # type: ignore[arg-type]
            tuple(json.loads(ask.shape)),
            ask.classes,
            tuple(json.loads(ask.words)),
        ).build(ask.seed)
        if len(task.x0) != ask.parameters:
            raise UndriftError(
                f"{ask.model} has {len(task.x0)} parameters here, and {ask.parameters} there"
            )
        return task

    def _memory(self, ask: Ask) -> NodeMemory:
        state = self.config.get("state")
        if not state:
            import platformdirs

            state = platformdirs.user_state_path("undrift") / "deploy"
        return NodeMemory(Path(str(state)) / ask.place)


def _local(text: str) -> Local:
    made = parse(text, {"Local": Local}, "local work")
    assert isinstance(made, Local)
    return made


def _stamps(ask: Ask) -> dict[str, Fact]:
    """What an answer says it is an answer to."""
    return {"t": ask.t, "client": ask.client, "based": ask.accepted}
