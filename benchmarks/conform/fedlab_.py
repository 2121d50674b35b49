"""FedLab in its standalone mode: server handlers and serial client trainers of its `contrib`."""

from __future__ import annotations

from typing import Any

import numpy as np
import with_torchvision  # noqa: F401
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.algorithm.feddyn import FedDynSerialClientTrainer, FedDynServerHandler
from fedlab.contrib.algorithm.fednova import FedNovaSerialClientTrainer, FedNovaServerHandler
from fedlab.contrib.algorithm.fedprox import FedProxSerialClientTrainer, FedProxServerHandler
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler
from linear import Linear, half_squares, loader

LIBRARY, PACKAGE = "FedLab", "fedlab"


class FedAvg:
    """The round of `StandalonePipeline.main`, with given cohorts and step sizes."""

    tolerance = 1e-6  # weights and τ are float32

    trainer, handler = FedAvgSerialClientTrainer, FedAvgServerHandler

    def start(self, x0: np.ndarray, clients: Any) -> None:
        self.begin(x0, clients)

    def begin(self, x0: np.ndarray, clients: Any, server: Any = None, **more: float) -> None:
        self.clients, self.more = clients, more
        self.client_side = self.trainer(Linear(x0), len(clients))
        self.client_side.setup_dataset(self)
        self.server = self.handler(Linear(x0), global_round=10**9, sample_ratio=1.0)
        self.server.num_clients = len(clients)
        if server is not None:
            self.server.setup_optim(**server)
        self.client_side.setup_optim(epochs=1, batch_size=0, lr=1.0, **more)
        self.client_side.criterion = half_squares

    def get_dataloader(self, i: int, batch_size: int) -> Any:
        return loader(self.clients[i], self.batches[i])

    def round(self, cohort: Any, batches: Any, lr: float, epochs: int) -> np.ndarray:
        self.batches = batches
        side, server = self.client_side, self.server
        side.epochs, side.lr = epochs, lr
        for group in side.optimizer.param_groups:
            group["lr"] = lr
        ratio = (len(cohort) + 0.5) / len(self.clients)  # it rounds ratio · clients down
        server.sample_ratio = min(ratio, 1.0)
        side.local_process(server.downlink_package, list(cohort))
        for package in side.uplink_package:
            server.load(package)
        return server.model_parameters.numpy()


class FedProx(FedAvg):
    trainer, handler = FedProxSerialClientTrainer, FedProxServerHandler

    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.begin(x0, clients, mu=mu)


class Scaffold(FedAvg):
    trainer, handler = ScaffoldSerialClientTrainer, ScaffoldServerHandler

    def start(self, x0: np.ndarray, clients: Any, server_lr: float) -> None:
        self.begin(x0, clients, server={"lr": server_lr})

    def states(self) -> dict[str, Any]:
        cs = self.client_side.cs
        known = {i: c.numpy() for i, c in enumerate(cs) if c is not None}
        return {"c": self.server.global_c.numpy(), "c_i": known}


class FedDyn(FedAvg):
    trainer, handler = FedDynSerialClientTrainer, FedDynServerHandler

    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.mu = mu
        self.begin(x0, clients, server={"alpha": mu}, alpha=mu)

    def states(self) -> dict[str, Any]:
        known = {
            i: one.numpy() / self.mu for i, one in enumerate(self.client_side.L) if one is not None
        }
        return {"h": self.server.h.numpy() / self.mu, "a_i": known}


class FedNova(FedAvg):
    trainer, handler = FedNovaSerialClientTrainer, FedNovaServerHandler
    option = "weighted_scale"

    def start(self, x0: np.ndarray, clients: Any) -> None:
        self.begin(x0, clients, server={"option": self.option})


class FedNovaUniform(FedNova):
    option = "uniform"


ADAPTERS = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "fednova: option='weighted_scale', its default": FedNova,
    "fednova(weights='uniform'): option='uniform'": FedNovaUniform,
}
