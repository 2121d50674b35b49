"""The data stay with 100 clients, of whom 5 train in a round. Before: centralised.py"""

import torch
from torch import nn

import undrift

digits = undrift.Digits().load(seed=0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))

data = undrift.federate(digits, undrift.Dirichlet(clients=100, alpha=0.1), seed=0)
task, five = undrift.Task(model), undrift.Uniform(5)
local = undrift.Local(lr=0.1, epochs=5, batch_size=16)
for round in undrift.rounds(undrift.FedAvg(), task, data, total=40, sampler=five, local=local):
    model = task.module(round.server.x)
    if round.t % 10 == 0:
        right = model(digits.test_inputs).argmax(1) == digits.test_targets
        print(f"after {round.t} rounds: {right.float().mean():.1%} right")
