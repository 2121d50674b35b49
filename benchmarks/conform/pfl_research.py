"""pfl-research: its algorithms on the simulated backend, one central iteration per round."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import linear
import numpy as np
import torch
from linear import Linear, batch_size, half_squares
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.fedprox import FedProx as PflFedProx
from pfl.algorithm.fedprox import FedProxParams
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.user_state import DiskUserStateStorage
from pfl.exception import UserNotFoundError
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.stats import MappedVectorStatistics
from torch import Tensor

LIBRARY, PACKAGE = "pfl-research", "pfl"
torch.serialization.add_safe_globals([MappedVectorStatistics])  # which newer torch asks for


class Model(Linear):
    """With the two methods that pfl asks for."""

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return half_squares(self(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor) -> dict:
        return {}


class FedAvg:
    """`FederatedAveraging`, weighted by data points as FedAvg's paper has it."""

    tolerance = 1e-6  # model differences are float32

    kind, params = FederatedAveraging, NNAlgorithmParams
    postprocessors = (WeightByDatapoints,)

    def start(self, x0: np.ndarray, clients: Any, server_lr: float) -> None:
        self.begin(x0, clients, partial(torch.optim.SGD, lr=server_lr))

    def begin(
        self,
        x0: np.ndarray,
        clients: Any,
        server: Any = partial(torch.optim.SGD, lr=1.0),
        **more: Any,
    ) -> None:
        self.net, self.more, self.t = Model(x0), more, 0
        self.stepper = server(self.net.parameters())
        self.model = PyTorchModel(
            self.net,
            lambda parameters, lr: torch.optim.SGD(parameters, lr=lr),
            self.stepper,
        )
        self.algorithm = self.kind()

        def data(i: int) -> Dataset:
            pair = [torch.from_numpy(clients[i].inputs), torch.from_numpy(clients[i].targets)]
            return Dataset(pair, user_id=str(i))

        everyone = FederatedDataset(data, lambda: next(self.cohort))
        self.backend = SimulatedBackend(
            everyone, everyone, postprocessors=[make() for make in self.postprocessors]
        )

    def round(self, cohort: Any, batches: Any, lr: float, epochs: int) -> np.ndarray:
        self.t += 1
        self.cohort = iter(cohort)
        self.algorithm.run(
            self.params(
                central_num_iterations=self.t,
                evaluation_frequency=10**9,
                train_cohort_size=len(cohort),
                val_cohort_size=None,
                **self.more,
            ),
            self.backend,
            self.model,
            NNTrainHyperParams(
                local_num_epochs=epochs,
                local_learning_rate=lr,
                local_batch_size=batch_size(batches),
            ),
        )
        return self.net.weight.detach().numpy().copy()


class FedProx(FedAvg):
    kind, params = PflFedProx, FedProxParams

    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.begin(x0, clients, mu=mu)


class Scaffold(FedAvg):
    kind, params = SCAFFOLD, SCAFFOLDParams
    postprocessors = ()
    option_1 = False

    def start(self, x0: np.ndarray, clients: Any, server_lr: float) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.storage = DiskUserStateStorage(self.folder.name)
        self.count = len(clients)
        self.begin(
            x0,
            clients,
            partial(torch.optim.SGD, lr=server_lr),
            population=len(clients),
            use_gradient_as_control_variate=self.option_1,
            user_state_storage=self.storage,
        )

    def states(self) -> dict[str, Any]:
        known = {}
        for i in range(self.count):
            try:
                known[i] = self.storage.load_state(str(i), "local_c")["weight"].numpy()
            except UserNotFoundError:
                continue
        return {"c": self.algorithm._server_c["weight"].numpy(), "c_i": known}


class ScaffoldOption1(Scaffold):
    option_1 = True


class Stepping(FedAvg):
    def optimiser(self) -> torch.optim.Optimizer:
        return self.stepper


class FedAvgM(linear.FedAvgM, Stepping): ...


class FedAdam(linear.FedAdam, Stepping): ...


class FedAdagrad(linear.FedAdagrad, Stepping): ...


ADAPTERS = {
    "fedavg: WeightByDatapoints": FedAvg,
    "fedprox: WeightByDatapoints": FedProx,
    "scaffold": Scaffold,
    "scaffold(option=1)": ScaffoldOption1,
    "fedavgm: WeightByDatapoints, server SGD(momentum)": FedAvgM,
    "fedadam: WeightByDatapoints, server Adam": FedAdam,
    "fedadagrad: WeightByDatapoints, server Adagrad": FedAdagrad,
}
