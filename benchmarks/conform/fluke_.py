"""fluke: its clients and servers, put together and driven by its documented API.

A round is `Server.fit` for one round, in which `get_eligible_clients` returns the cohort. The step
size is set in the clients' optimisers before the round. What is not in its documentation was found
by trying: its sources were not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import with_torchvision  # noqa: F401
from fluke import FlukeENV
from fluke.algorithms.fedavgm import FedAVGMServer
from fluke.algorithms.feddyn import FedDynClient, FedDynServer
from fluke.algorithms.fedexp import FedExPServer
from fluke.algorithms.fednova import FedNovaClient, FedNovaServer
from fluke.algorithms.fedopt import FedOptServer
from fluke.algorithms.fedprox import FedProxClient
from fluke.algorithms.fedsam import FedSAMClient, SAMOptimizer
from fluke.algorithms.scaffold import SCAFFOLDClient, SCAFFOLDServer
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from linear import Linear, half_squares

LIBRARY, PACKAGE = "fluke", "fluke-fl"


class FedAvg:
    client, server = Client, Server
    optimiser: Any = "SGD"
    weighted = True

    def start(self, x0: np.ndarray, clients: Any) -> None:
        self.begin(x0, clients)

    def begin(self, x0: np.ndarray, clients: Any, local: Any = None, **server: Any) -> None:
        self.x0, self.clients, self.options = x0, clients, (local or {}, server)
        self.made: Any = None

    def make(self, batches: Any, lr: float, epochs: int) -> None:
        """Clients and server, once mini-batches are known: those of each client are in order."""
        FlukeENV().set_device("cpu")
        FlukeENV().set_seed(0)
        local, server = self.options
        self.lr = lr
        self.sides, self.optimisers = [], []
        for i, one in enumerate(self.clients):
            data = FastDataLoader(
                *map(torch.from_numpy, (one.inputs, one.targets)),
                num_labels=1,
                batch_size=len(batches[i][0]),
                skip_singleton=False,
            )
            optimiser = OptimizerConfigurator(
                {"name": self.optimiser, "lr": lr}, {"name": "StepLR", "step_size": 1, "gamma": 1}
            )
            loss = Loss()
            self.optimisers.append(optimiser)
            self.sides.append(
                self.client(
                    i, data, None, optimiser, loss, local_epochs=epochs, clipping=0, **local
                )
            )
        self.made = self.server(Linear(self.x0), None, self.sides, weighted=self.weighted, **server)
        for side in self.sides:
            side.set_channel(self.made.channel)
        self.made.get_eligible_clients = lambda _: [self.sides[i] for i in self.cohort]

    def round(self, cohort: Any, batches: Any, lr: float, epochs: int) -> np.ndarray:
        if self.made is None:
            self.make(batches, lr, epochs)
        self.cohort = cohort
        for side in self.sides:
            if side.optimizer is not None:
                for group in side.optimizer.param_groups:
                    group["lr"] = lr
        for one in self.optimisers:
            one.optimizer_cfg["lr"] = lr
        self.made.fit(n_rounds=1, eligible_perc=1.0, finalize=False)
        return self.sent().weight.detach().numpy().ravel().copy()

    def sent(self) -> Any:
        """The model that clients get in the next round."""
        return self.made.model


class UniformFedAvg(FedAvg):
    weighted = False


class Loss(torch.nn.Module):
    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return half_squares(outputs, targets)


class FedProx(FedAvg):
    client = FedProxClient

    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.begin(x0, clients, {"mu": mu})


class Scaffold(FedAvg):
    client, server = SCAFFOLDClient, SCAFFOLDServer

    def start(self, x0: np.ndarray, clients: Any, server_lr: float) -> None:
        self.begin(x0, clients, global_step=server_lr)


class UniformScaffold(Scaffold):
    weighted = False


class FedNova(FedAvg):
    client, server = FedNovaClient, FedNovaServer
    tolerance = 1e-6  # weights are float32


class FedDyn(FedAvg):
    client, server = FedDynClient, FedDynServer

    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.begin(x0, clients, {"alpha": mu}, alpha=mu)

    def sent(self) -> Any:
        return self.made.cld_mdl


class UniformFedDyn(FedDyn):
    weighted = False


class FedAvgM(FedAvg):
    server = FedAVGMServer

    def start(self, x0: np.ndarray, clients: Any, beta: float, server_lr: float) -> None:
        if server_lr != 1:
            raise NotImplementedError("There is no server step size.")
        self.begin(x0, clients, momentum=beta)


class FedAdam(FedAvg):
    server, mode = FedOptServer, "adam"

    def start(
        self, x0: np.ndarray, clients: Any, server_lr: float, beta1: float, beta2: float, eps: float
    ) -> None:
        self.begin(x0, clients, mode=self.mode, lr=server_lr, beta1=beta1, beta2=beta2, tau=eps)


class FedYogi(FedAdam):
    mode = "yogi"


class FedAdagrad(FedAvg):
    server = FedOptServer

    def start(self, x0: np.ndarray, clients: Any, server_lr: float, eps: float) -> None:
        self.begin(x0, clients, mode="adagrad", lr=server_lr, beta1=0.0, beta2=0.0, tau=eps)


class FedSAM(FedAvg):
    client, optimiser = FedSAMClient, SAMOptimizer

    def start(self, x0: np.ndarray, clients: Any, rho: float) -> None:
        self.begin(x0, clients, {"rho": rho})


class FedExP(FedAvg):
    server = FedExPServer
    weighted = False
    tolerance = 1e-4  # the server's model becomes float32, and ζ enlarges what is rounded

    def round(self, cohort: Any, batches: Any, lr: float, epochs: int) -> np.ndarray:
        x = super().round(cohort, batches, lr, epochs)
        self.made.model.double()  # which the clients of the next round have
        return x


ADAPTERS = {
    "fedavg: weighted=True": FedAvg,
    "fedavg(weights='uniform'): weighted=False, its default": UniformFedAvg,
    "fedprox: weighted=True": FedProx,
    "scaffold: weighted=True, its default": Scaffold,
    "scaffold: weighted=False": UniformScaffold,
    "fednova: weighted=True": FedNova,
    "feddyn: weighted=True, its default": FedDyn,
    "feddyn: weighted=False": UniformFedDyn,
    "fedavgm": FedAvgM,
    "fedadam: FedOpt": FedAdam,
    "fedyogi: FedOpt": FedYogi,
    "fedadagrad: FedOpt": FedAdagrad,
    "fedsam: weighted=True": FedSAM,
    "fedexp(eps=1e-4): weighted=False, its default": FedExP,
}
