"""fedsim: one process, one client after the other.

It draws batches with replacement, all of them full, and limits the gradient's norm in every step.
"""

from __future__ import annotations

import tempfile
from functools import partial
from importlib.metadata import version

import torch
import with_torchvision  # noqa: F401
from fedsim.distributed.centralized.training import FedAvg
from fedsim.distributed.data_management.data_manager import DataManager
from fedsim.losses import CrossEntropyLoss
from fedsim.utils import Storage
from torch.utils.data import Dataset, TensorDataset
from with_torch import MODELS, Steps, client, dead
from work import BATCH, CLIENTS, DECAY, LR, Watch, Work, order


class Clients(DataManager):
    """Everybody's data, one client after the other."""

    def __init__(self, work: Work, folder: str) -> None:
        self.work = work
        super().__init__(folder, seed=0, save_dir=folder)

    def make_datasets(self, root: str) -> tuple[Dataset, Dataset]:
        pairs = [client(self.work.name, i) for i in range(CLIENTS)]
        inputs, targets = map(torch.cat, zip(*pairs, strict=True))
        everyone = TensorDataset(inputs, targets)
        everyone.targets = targets.numpy()
        return everyone, everyone

    def make_transforms(self) -> tuple[dict, dict]:
        return {"train": None}, {"test": None}

    def partition_local_data(self, dataset: Dataset) -> dict[str, list[range]]:
        n = self.work.samples
        return {"train": [range(i * n, (i + 1) * n) for i in range(CLIENTS)]}

    def partition_global_data(self, dataset: Dataset) -> dict[str, range]:
        return {"test": range(1)}

    def get_identifiers(self) -> list[str]:
        return [self.work.name]


def main() -> None:
    asked = order(__doc__, ("1 thread", "2 threads"))
    work = asked.work
    watch, steps = Watch("fedsim", version("fedsim"), asked), Steps()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    first = MODELS[work.name]()[0].weight

    class Timed(FedAvg):
        def at_round_end(server_storage: Storage, score_aggregator: object) -> None:
            flat = server_storage.read("cloud_params")
            watch.lap(steps.made, dead(work, flat[: first.numel()].view_as(first)))

    with tempfile.TemporaryDirectory() as folder:
        algorithm = Timed(
            data_manager=Clients(work, folder),
            metric_logger=None,
            num_clients=CLIENTS,
            sample_scheme="uniform",
            sample_rate=1.0,
            model_def=MODELS[work.name],
            epochs=work.epochs,
            criterion_def=CrossEntropyLoss,
            local_optimizer_def=partial(torch.optim.SGD, lr=LR, weight_decay=DECAY),
            batch_size=BATCH,
        )
        algorithm.train(rounds=asked.rounds)  # fedsim makes one more
    watch.report()


if __name__ == "__main__":
    main()
