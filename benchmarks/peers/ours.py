"""undrift, on its fastest engine."""

from __future__ import annotations

import torch
from with_torch import client, dead, model
from work import BATCH, CLIENTS, DECAY, LR, Watch, order

import undrift
from undrift.data import FederatedData
from undrift.federation.rounds import rounds
from undrift.training.work import Local

try:
    from undrift.engines import Compiled
except ImportError:
    from undrift.engines import Sequential

    engine = Sequential()
else:
    engine = Compiled(workers=2)


def main() -> None:
    asked = order(__doc__, ("1 thread in 2 workers",))
    work = asked.work
    watch = Watch("undrift", undrift.__version__, asked)
    torch.set_num_threads(asked.threads)
    data = FederatedData.of_clients([client(work.name, i) for i in range(CLIENTS)])
    server = model(work)
    local = Local(lr=LR, weight_decay=DECAY, batch_size=BATCH, epochs=work.epochs, batching="keep")
    task, steps = undrift.Task(server), 0
    first = server[0].weight
    for round in rounds(
        undrift.FedAvg(), task, data, total=1 + asked.rounds, local=local, engine=engine
    ):
        steps += round.steps
        watch.lap(steps, dead(work, round.server.x[: first.numel()].view_as(first)))
    watch.report(engine=type(engine).__name__)


if __name__ == "__main__":
    main()
