"""A part of your own: it goes around any algorithm, and keeps its variables under its own name."""

from dataclasses import dataclass

import torch

import undrift
from undrift.core import RoundFacts, Struct, Vector, real


@dataclass(frozen=True)
class Averaged(undrift.Part):
    """A running mean of the models, for those who deploy; training does not notice.

    decay  share of the past in the mean. Neutral: 0.
    """

    decay: float = real(0.9, ge=0, lt=1)

    rank = 2  # acts on the server, outside of all that happens on clients

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return self.inner.init_server(x, groups) | Struct(averaged=Struct(x=x))

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = self.inner.update(s, mean, round)
        x = self.decay * s.averaged.x + (1 - self.decay) * (s.x - mean.delta)
        return d, changes | Struct(averaged=Struct(x=x))


data = undrift.federate(undrift.Digits(), undrift.Dirichlet(clients=100, alpha=0.1), seed=0)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
task = undrift.Task(model)
local = undrift.Local(lr=0.1, epochs=5, batch_size=16)

for inner in undrift.FedAvg(), undrift.AdaBest(mu=0.02, beta=0.9):
    algorithm = Averaged(inner)
    undrift.check_algorithm(algorithm)
    options = {"total": 60, "sampler": undrift.Uniform(5), "local": local}
    *_, last = undrift.rounds(algorithm, task, data, **options)
    models = {"last": last.server.xbar, "averaged": last.server.averaged.x}
    right = {name: task.evaluate(x, last.buffers, *data.test)[1] for name, x in models.items()}
    print(f"{algorithm}: last {right['last']:.1%}, averaged {right['averaged']:.1%} right")
