"""How much time subnormal numbers cost where processors compute with them.

python -m benchmarks.subnormals

Ten clients with one label each make 20 epochs with momentum, and are soon so sure of it that most
gradients nearly vanish. Rounds with and without such numbers are measured in turn, on one worker.
"""

from __future__ import annotations

import time
from statistics import median
from unittest.mock import patch

import torch

import undrift
from benchmarks.workloads import mlp
from undrift.data import FederatedData
from undrift.engines import Compiled

CLIENTS, SAMPLES, ROUNDS, TURNS = 10, 600, 8, 3


def one_label_each() -> FederatedData:
    """Random images of 784 pixels, whose label is their client's number."""
    count = CLIENTS * SAMPLES
    offsets = torch.arange(0, count + 1, SAMPLES).numpy()
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(count, 784, generator=generator), torch.arange(count) // SAMPLES
    order = torch.arange(count).numpy()
    return FederatedData(inputs, targets, order, offsets, inputs[:0], targets[:0])


def seconds() -> float:
    """Time of the second half of the rounds."""
    torch.manual_seed(0)
    rounds = undrift.rounds(
        undrift.algorithm("LocalOpt(Clip(FedAvg(), norm=1.0), HeavyBall(beta=0.9))"),
        undrift.Task(mlp()),
        one_label_each(),
        total=ROUNDS,
        local=undrift.Local(lr=0.1, epochs=20, batch_size=64),
        engine=Compiled(workers=1),
    )
    for round in rounds:
        if round.t == ROUNDS // 2:
            began = time.perf_counter()
    return time.perf_counter() - began


def main() -> None:
    kept, flushed = [], []
    for _ in range(TURNS):
        flushed.append(seconds())
        with patch.object(torch, "set_flush_denormal"):
            kept.append(seconds())
    one, other = median(kept), median(flushed)
    print(f"{ROUNDS // 2} rounds: {one:.2f} s with subnormal numbers, {other:.2f} s without")
    print(f"without them {one / other:.1f} times as fast")


if __name__ == "__main__":
    main()
