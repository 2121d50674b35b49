"""Flower: its strategies, between plain clients.

Local training is the user's in Flower, so only what servers do is compared. A round is what
`Strategy.start` does in one: configure_train, replies, aggregate_train. FedProx's strategy only
sends mu to the user's code and is left out.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy
from flwr.supercore.task_identity import TaskIdentity

LIBRARY, PACKAGE = "Flower", "flwr"
logging.getLogger("flwr").setLevel(logging.ERROR)
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # else a runtime's


class Grid:
    """Knows the nodes of a round; node 0 does not exist in Flower."""

    def __init__(self, cohort: Any) -> None:
        self.nodes = [i + 1 for i in cohort]

    def get_node_ids(self) -> list[int]:
        return self.nodes


class FedAvg:
    kind = strategy.FedAvg

    def start(self, x0: np.ndarray, clients: Any) -> None:
        self.begin(x0, clients)

    def begin(self, x0: np.ndarray, clients: Any, **options: float) -> None:
        self.x, self.clients, self.t = x0, clients, 0
        few = dict.fromkeys(("min_train_nodes", "min_available_nodes"), 1)
        self.strategy = self.kind(fraction_evaluate=0.0, **few, **options)

    def round(
        self, cohort: Any, batches: Any, lr: float, epochs: int, dropped: Any = ()
    ) -> np.ndarray:
        self.t += 1
        sent = self.strategy.configure_train(
            self.t, ArrayRecord({"x": Array(self.x)}), ConfigRecord(), Grid(cohort)
        )
        messages = sorted(sent, key=lambda one: list(cohort).index(one.metadata.dst_node_id - 1))
        replies = [
            self.train(message, batches, lr, epochs)
            for message in messages
            if message.metadata.dst_node_id - 1 not in dropped
        ]
        arrays, _ = self.strategy.aggregate_train(self.t, replies)
        self.x = arrays["x"].numpy()
        return self.x

    def train(self, message: Message, batches: Any, lr: float, epochs: int) -> Message:
        """A user's client."""
        i = message.metadata.dst_node_id - 1
        y = message.content["arrays"]["x"].numpy()
        for rows in [*batches[i]] * epochs:
            y = y - lr * self.clients[i].grad(y, rows)
        answer = {
            "arrays": ArrayRecord({"x": Array(y)}),
            "metrics": MetricRecord({"num-examples": self.clients[i].n}),
        }
        return Message(content=RecordDict(answer), reply_to=message)


class FedAvgM(FedAvg):
    kind = strategy.FedAvgM

    def start(self, x0: np.ndarray, clients: Any, beta: float, server_lr: float) -> None:
        self.begin(x0, clients, server_momentum=beta, server_learning_rate=server_lr)

    def states(self) -> dict[str, Any]:
        vector = self.strategy.momentum_vector
        return {"m": vector[0]} if vector else {}


class FedAdam(FedAvg):
    kind = strategy.FedAdam

    def start(
        self,
        x0: np.ndarray,
        clients: Any,
        server_lr: float,
        beta1: float,
        beta2: float,
        eps: float,
    ) -> None:
        self.begin(x0, clients, eta=server_lr, beta_1=beta1, beta_2=beta2, tau=eps)

    def states(self) -> dict[str, Any]:
        return {"m": -self.strategy.m_t["x"], "v": self.strategy.v_t["x"]}


class FedYogi(FedAdam):
    kind = strategy.FedYogi


class FedAdagrad(FedAvg):
    kind = strategy.FedAdagrad

    def start(self, x0: np.ndarray, clients: Any, server_lr: float, eps: float) -> None:
        self.begin(x0, clients, eta=server_lr, tau=eps)

    def states(self) -> dict[str, Any]:
        return {"v": self.strategy.v_t["x"]}


class Krum(FedAvg):
    kind = strategy.Krum

    def start(self, x0: np.ndarray, clients: Any, f: int) -> None:
        self.begin(x0, clients, num_malicious_nodes=f)


class MultiKrum(FedAvg):
    kind = strategy.MultiKrum

    def start(self, x0: np.ndarray, clients: Any, f: int, m: int) -> None:
        self.begin(x0, clients, num_malicious_nodes=f, num_nodes_to_select=m)


class Median(FedAvg):
    kind = strategy.FedMedian


class TrimmedMean(FedAvg):
    kind = strategy.FedTrimmedAvg

    def start(self, x0: np.ndarray, clients: Any, fraction: float) -> None:
        self.begin(x0, clients, beta=fraction)


ADAPTERS = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "krum: Krum": Krum,
    "krum: MultiKrum": MultiKrum,
    "median: FedMedian": Median,
    "trimmedmean: FedTrimmedAvg": TrimmedMean,
}
