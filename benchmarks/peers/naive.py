"""FedAvg as a plain PyTorch loop: the yardstick."""

from __future__ import annotations

import copy

import torch
from with_torch import Steps, client, dead, model, train
from work import CLIENTS, Watch, order


def main() -> None:
    asked = order(__doc__, ("1 thread", "2 threads"))
    work = asked.work
    watch, steps = Watch("naive loop", torch.__version__, asked), Steps()
    torch.set_num_threads(asked.threads)
    server = model(work)
    for _ in range(1 + asked.rounds):
        states = []
        for i in range(CLIENTS):
            local = copy.deepcopy(server)
            train(local, *client(work.name, i), work.epochs)
            states.append(local.state_dict())
        server.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})
        watch.lap(steps.made, dead(work, server[0].weight))
    watch.report()


if __name__ == "__main__":
    main()
