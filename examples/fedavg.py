"""FedAvg where clients drift. One line makes it another algorithm: diff fedavg.py adabest.py"""

import torch

import undrift

algorithm = undrift.FedAvg()
data = undrift.federate(undrift.Digits(), undrift.Dirichlet(clients=100, alpha=0.1), seed=0)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
task = undrift.Task(model)

megabytes = 0.0
for round in undrift.rounds(
    algorithm,
    task,
    data,
    total=60,
    sampler=undrift.Uniform(5),
    local=undrift.Local(lr=0.1, epochs=5, batch_size=16),
):
    megabytes += (round.bytes_down + round.bytes_up) / 1e6
    if round.t % 15 == 0:
        _, accuracy = task.evaluate(round.server.xbar, round.buffers, *data.test)
        print(f"round {round.t}: {accuracy:.1%} right, {megabytes:.0f} MB, drift {round.drift:.2f}")
