"""fedsim: its algorithms' own rounds, `train(rounds=0)`, which makes one.

It draws mini-batches at random with replacement; here the loader gives those of the probe. It makes
targets whole numbers, so they are part of the inputs: the model returns inputs·x − target.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

os.environ["TQDM_DISABLE"] = "1"

import linear
import numpy as np
import torch
import with_torchvision  # noqa: F401
from fedsim.distributed.centralized.training import AdaBest as FedsimAdaBest
from fedsim.distributed.centralized.training import FedAvg as FedsimFedAvg
from fedsim.distributed.centralized.training import FedDyn as FedsimFedDyn
from fedsim.distributed.centralized.training import FedNova as FedsimFedNova
from fedsim.distributed.centralized.training import FedProx as FedsimFedProx
from fedsim.distributed.centralized.training import fedavg as module
from linear import Linear
from torch import Tensor

LIBRARY, PACKAGE = "fedsim", "fedsim"


class Residual(Linear):
    """inputs·x − target; the target is the last input."""

    def forward(self, both: Tensor) -> Tensor:
        return super().forward(both[:, :-1]) - both[:, -1:]


class HalfSquares:
    """A criterion of fedsim: a score that is never logged."""

    log_freq = 10**9

    def __call__(self, residual: Tensor, _: Tensor) -> Tensor:
        return 0.5 * (residual**2).mean()

    def get_name(self) -> str:
        return "half squares"

    def get_score(self) -> float:
        return 0.0


class Samples(list):
    """A client's mini-batches; its length is the number of samples."""

    def __init__(self, client: Any, batches: Any) -> None:
        both = torch.from_numpy(np.column_stack([client.inputs, client.targets]))
        super().__init__((both[rows], torch.zeros(len(rows))) for rows in batches)
        self.n = client.n

    def __len__(self) -> int:
        return self.n


def given_order(samples: Samples, **_: Any) -> Any:
    """In place of a loader that shuffles."""
    return list(iter(samples))


module.DataLoader = given_order
module.RandomSampler = lambda *_, **__: None


class FedAvg:
    kind: Any = FedsimFedAvg

    def start(self, x0: np.ndarray, clients: Any, server_lr: float) -> None:
        self.begin(x0, clients, partial(torch.optim.SGD, lr=server_lr))

    def begin(
        self,
        x0: np.ndarray,
        clients: Any,
        server: Any = partial(torch.optim.SGD, lr=1.0),
        **more: float,
    ) -> None:
        self.clients = clients

        class Chosen(self.kind):
            def _sample_clients(_) -> Any:
                return self.cohort

        self.algorithm = Chosen(
            data_manager=self,
            metric_logger=None,
            num_clients=len(clients),
            sample_scheme="uniform",
            sample_rate=1.0,
            model_def=partial(Residual, x0),
            epochs=1,
            criterion_def=HalfSquares,
            optimizer_def=server,
            **more,
        )
        self.server = self.algorithm.get_server_storage()

    def get_local_dataset(self, i: int) -> dict[str, Samples]:
        return {"train": Samples(self.clients[i], self.batches[i])}

    def get_global_dataset(self) -> dict[str, Any]:
        return {}

    def get_oracle_dataset(self) -> dict[str, Any]:
        return {"train": range(sum(client.n for client in self.clients))}

    def get_local_splits_names(self) -> list[str]:
        return ["train"]

    def round(self, cohort: Any, batches: Any, lr: float, epochs: int) -> np.ndarray:
        self.cohort, self.batches = cohort, batches
        local = self.algorithm._local_cfg
        size = max(len(rows) for rows in batches[cohort[0]])
        sgd = partial(torch.optim.SGD, lr=lr)
        for name, value in (("epochs", epochs), ("batch_size", size), ("local_optimizer_def", sgd)):
            local.write(name, value, write_protected=True, silent=True)
        self.algorithm.train(rounds=0)
        return self.server.read("cloud_params").detach().numpy().copy()

    def memories(self, name: str) -> dict[int, np.ndarray]:
        stores = self.algorithm._client_memory.items()
        found = {i: store.read(name) for i, store in stores}
        return {i: one.detach().numpy() for i, one in found.items() if one is not None}


class FedProx(FedAvg):
    kind = FedsimFedProx

    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.begin(x0, clients, mu=mu)


class FedNova(FedAvg):
    kind = FedsimFedNova

    def start(self, x0: np.ndarray, clients: Any) -> None:
        self.begin(x0, clients)


class FedDyn(FedAvg):
    kind = FedsimFedDyn

    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.begin(x0, clients, alpha=mu)

    def states(self) -> dict[str, Any]:
        return {"h": self.server.read("h").detach().numpy(), "a_i": self.memories("h")}


class AdaBest(FedAvg):
    kind = FedsimAdaBest

    def start(self, x0: np.ndarray, clients: Any, mu: float, beta: float) -> None:
        self.begin(x0, clients, mu=mu, beta=beta)

    def states(self) -> dict[str, Any]:
        return {"h_i": self.memories("h")}


class Stepping(FedAvg):
    def optimiser(self) -> torch.optim.Optimizer:
        return self.server.read("optimizer")


class FedAvgM(linear.FedAvgM, Stepping): ...


class FedAdam(linear.FedAdam, Stepping): ...


class FedAdagrad(linear.FedAdagrad, Stepping): ...


ADAPTERS = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fednova": FedNova,
    "feddyn": FedDyn,
    "adabest": AdaBest,
    "fedavgm: server SGD(momentum)": FedAvgM,
    "fedadam: server Adam": FedAdam,
    "fedadagrad: server Adagrad": FedAdagrad,
}
