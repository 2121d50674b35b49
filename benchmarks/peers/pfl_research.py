"""pfl-research on its simulated backend: one process, or two that share the cohort.

It takes a client's batches in the order of the data and does not shuffle.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from with_torch import MODELS, Steps, client, dead
from work import BATCH, CLIENTS, DECAY, LR, Watch, Work, order

FIRST = int(os.environ.get("RANK", 0)) == 0


def model(work: Work) -> nn.Module:
    """The model with the two methods that pfl asks for."""

    class Model(MODELS[work.name]):
        def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
            return nn.functional.cross_entropy(self(inputs), targets)

        def metrics(self, inputs: Tensor, targets: Tensor) -> dict:
            return {}

    torch.manual_seed(0)
    return Model()


class Laps(TrainingProcessCallback):
    """Takes the time of every round."""

    def __init__(self, watch: Watch, steps: Steps) -> None:
        self.watch, self.steps = watch, steps

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        steps = torch.tensor(self.steps.made)
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(steps)
        self.watch.lap(int(steps), dead(self.watch.work, model.pytorch_model[0].weight))
        return False, Metrics()


def main() -> None:
    asked = order(__doc__, ("1 thread", "2 threads", "1 thread in 2 processes"))
    if "processes" in asked.setup and "RANK" not in os.environ:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [*torchrun, *sys.argv])
    work = asked.work
    root = os.getppid() if "RANK" in os.environ else os.getpid()
    watch, steps = Watch("pfl-research", version("pfl"), asked, root), Steps()
    torch.set_num_threads(asked.threads)
    net = model(work)
    users = list(range(CLIENTS))
    everyone = FederatedDataset(
        lambda i: Dataset(client(work.name, i), user_id=str(i)),
        get_user_sampler("minimize_reuse", users),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=1 + asked.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=CLIENTS,
            val_cohort_size=None,
        ),
        SimulatedBackend(everyone, everyone),
        PyTorchModel(
            net,
            lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, weight_decay=DECAY),
            torch.optim.SGD(net.parameters(), lr=1.0),
        ),
        NNTrainHyperParams(
            local_num_epochs=work.epochs, local_learning_rate=LR, local_batch_size=BATCH
        ),
        callbacks=[Laps(watch, steps)],
    )
    if FIRST:
        watch.report()


if __name__ == "__main__":
    np.random.seed(0)
    main()
