"""fluke: one process, one client after the other, driven by its documented API."""

from __future__ import annotations

from importlib.metadata import version

import torch
import with_torchvision  # noqa: F401
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter
from fluke.data.datasets import DataContainer
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver
from with_torch import Steps, client, dead, model
from work import BATCH, CLIENTS, DECAY, LR, Watch, Work, order


def data(work: Work) -> DataContainer:
    """Everybody's data in one; fluke deals them out again."""
    pairs = [client(work.name, i) for i in range(CLIENTS)]
    inputs, targets = map(torch.cat, zip(*pairs, strict=True))
    return DataContainer(inputs, targets, inputs[:BATCH], targets[:BATCH], work.classes)


def main() -> None:
    asked = order(__doc__, ("1 thread", "2 threads"))
    work = asked.work
    watch, steps = Watch("fluke", version("fluke-fl"), asked), Steps()
    torch.set_num_threads(asked.threads)
    settings = FlukeENV()
    settings.set_seed(0)
    settings.set_device("cpu")
    settings.set_evaluator(ClassificationEval(eval_every=10**9, n_classes=work.classes))
    optimiser = DDict(name="SGD", lr=LR, weight_decay=DECAY)
    local = DDict(
        batch_size=BATCH,
        local_epochs=work.epochs,
        loss="CrossEntropyLoss",
        optimizer=optimiser,
        scheduler=DDict(gamma=1, step_size=1),
    )
    algorithm = FedAVG(
        n_clients=CLIENTS,
        data_splitter=DataSplitter(dataset=data(work), distribution="iid"),
        hyper_params=DDict(client=local, server=DDict(weighted=True), model=model(work)),
    )

    class Laps(FederationObserver):
        def end_round(self, round: int) -> None:
            watch.lap(steps.made, dead(work, algorithm.server.model[0].weight))

    algorithm.set_callbacks(Laps())
    torch.set_num_threads(asked.threads)
    algorithm.run(n_rounds=1 + asked.rounds, eligible_perc=1.0)
    watch.report()


if __name__ == "__main__":
    main()
