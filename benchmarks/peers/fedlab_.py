"""FedLab in its standalone mode: one process, one client after the other."""

from __future__ import annotations

from importlib.metadata import version

import torch
import with_torchvision  # noqa: F401
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from torch.utils.data import DataLoader, TensorDataset
from with_torch import Steps, client, dead, model
from work import BATCH, CLIENTS, DECAY, LR, Watch, Work, order


class Clients(FedDataset):
    """Everybody's data."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def get_dataloader(self, id: int, batch_size: int) -> DataLoader:
        data = TensorDataset(*client(self.work.name, id))
        return DataLoader(data, batch_size=batch_size, shuffle=True)


class Trainer(FedAvgSerialClientTrainer):
    """FedLab's trainer, with weight decay."""

    def setup_optim(self, epochs: int, batch_size: int, lr: float) -> None:
        super().setup_optim(epochs, batch_size, lr)
        self.optimizer = torch.optim.SGD(self._model.parameters(), lr, weight_decay=DECAY)


class Pipeline(StandalonePipeline):
    """FedLab's loop, timed where users evaluate."""

    def __init__(self, handler: FedAvgServerHandler, trainer: Trainer, watch: Watch) -> None:
        super().__init__(handler, trainer)
        self.watch, self.steps = watch, Steps()

    def evaluate(self) -> None:
        self.watch.lap(self.steps.made, dead(self.watch.work, self.handler.model[0].weight))


def main() -> None:
    asked = order(__doc__, ("1 thread", "2 threads"))
    work = asked.work
    watch = Watch("FedLab", version("fedlab"), asked)
    torch.set_num_threads(asked.threads)
    trainer = Trainer(model(work), CLIENTS)
    trainer.setup_dataset(Clients(work))
    trainer.setup_optim(work.epochs, BATCH, LR)
    handler = FedAvgServerHandler(model(work), global_round=1 + asked.rounds, sample_ratio=1.0)
    Pipeline(handler, trainer, watch).main()
    watch.report()


if __name__ == "__main__":
    main()
