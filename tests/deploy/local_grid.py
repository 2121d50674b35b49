"""A deployment without processes: a grid that hands messages to the ClientApp in this process.

Messages are taken apart to bytes and put together again, as on their way through a SuperLink. What
may go wrong with one is drawn anew for every message:

    lost    it never arrives                 crash   the node dies in training
    unsent  it dies with its new memory on disk, before its upload
    late    the upload arrives after the deadline, and nobody reads it
    twice   it is delivered twice, and both uploads are the same
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from undrift.core import Struct
from undrift.data.federated import FederatedData
from undrift.deploy.client import client_app
from undrift.deploy.memory import NodeMemory
from undrift.deploy.node import Load

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # a runtime sets these

FAULTS = ("lost", "crash", "unsent", "late", "twice")
FIRST = 100
"""number of the node of client 0"""


class Crash(Exception):
    """A node dies."""


def over_the_wire(message: Message) -> Message:
    objects = {name: one.deflate() for name, one in get_all_nested_objects(message).items()}
    arrived: Message = inflate_object_from_contents(message.object_id, objects)
    return arrived


class LocalGrid(Grid):
    """The nodes of a deployment, in this process.

    faults  chance that something happens to a message
    """

    def __init__(
        self,
        app: ClientApp,
        configs: Mapping[int, Mapping[str, Any]],
        faults: float = 0,
        seed: int = 0,
    ) -> None:
        self.app, self.faults, self.rng = app, faults, random.Random(seed)
        self.contexts = {
            node: Context(1, node, dict(config), RecordDict(), {})
            for node, config in configs.items()
        }
        self.replies: dict[str, Message] = {}
        self.happened: Counter[str] = Counter()
        self.fates: dict[int, str] = {}
        self.away: set[int] = set()

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.contexts if node not in self.away]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        message.metadata.__dict__["_src_node_id"] = 1
        name = message.object_id
        message.metadata.__dict__["_message_id"] = name
        node = message.metadata.dst_node_id
        fault = self._fate(message.metadata.message_type, node)
        self.happened[fault] += 1
        if fault == "lost" or node in self.away:
            return name
        for _ in range(2 if fault == "twice" else 1):
            arrived = over_the_wire(message)
            arrived.metadata.__dict__["_message_id"] = name
            if fault == "crash":
                with patch.object(NodeMemory, "put", side_effect=Crash):
                    self.app(arrived, self.contexts[node])
                continue
            reply = over_the_wire(self.tampered(node, self.app(arrived, self.contexts[node])))
            if fault in ("ok", "twice"):
                self.replies[name] = reply
        return name

    def tampered(self, node: int, reply: Message) -> Message:
        """What a node sends in place of its reply."""
        return reply

    def _fate(self, kind: str, node: int) -> str:
        if kind in ("query", "evaluate"):
            return "ok"
        if kind == "train" and node in self.fates:
            return self.fates.pop(node)
        fault = self.rng.choice(FAULTS) if self.rng.random() < self.faults else "ok"
        if kind == "train.survey":  # a client that is absent from a round is absent from all of it
            self.fates[node] = fault
        return fault

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(one) for one in message_ids if one in self.replies]

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *given: Any, **more: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *given: Any, **more: Any) -> Iterable[Message]:
        raise NotImplementedError


def loader(data: FederatedData) -> Load:
    """The function by which each node finds its samples."""

    def load(config: Mapping[str, Any]) -> tuple[Any, Any]:
        return data.batch(data.rows(int(config.get("samples", config["client"]))))

    return load


def local_grid(
    data: FederatedData, folder: Path, kind: type[LocalGrid] = LocalGrid, **more: Any
) -> LocalGrid:
    """A node for each client, with its state in a folder of its own."""
    configs = {
        FIRST + i: {"client": i, "state": str(folder / f"node-{i}")} for i in range(len(data))
    }
    return kind(client_app(loader(data)), configs, **more)


def memories(folder: Path, client: int) -> list[Struct]:
    """All versions on a node's disk, of all trials."""
    found = []
    for place in sorted((folder / f"node-{client}").iterdir()):
        memory = NodeMemory(place)
        found += [memory._read(t) for t in memory.stamps]
    return found
