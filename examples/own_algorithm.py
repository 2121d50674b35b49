"""An algorithm of your own: say where it differs from FedAvg, and ask whether it keeps the laws.

This one is FedCM (Xu et al., Federated learning with client-level momentum, 2021).
"""

from dataclasses import dataclass

import torch

import undrift
from undrift.core import Client, Grad, RoundFacts, Struct, Vector, real


@dataclass(frozen=True)
class FedCM(undrift.Algorithm):
    """Every local step leans towards the last round's mean step.

    g  mean update of the last round, per local step     alpha  share of the client's own gradient
    """

    alpha: float = real(0.5, gt=0, le=1)

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return super().init_server(x, groups) | Struct(g=0 * x)

    def download(self, s: Struct) -> Struct:
        return Struct(x=s.x, g=s.g)

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        return self.alpha * grad(local.y) + (1 - self.alpha) * down.g  # α∇L_i(y) + (1−α)g

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        return mean.delta, Struct(g=mean.raw / (round.lr * round.steps))  # g ← ḡ/(ηK)


undrift.check_algorithm(FedCM())
print("FedCM keeps all laws")

data = undrift.federate(undrift.Digits(), undrift.Dirichlet(clients=100, alpha=0.1), seed=0)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
task = undrift.Task(model)
local = undrift.Local(lr=0.1, epochs=5, batch_size=16)

ends = {}
for algorithm in undrift.FedAvg(), FedCM(alpha=1.0), FedCM():
    options = {"total": 60, "sampler": undrift.Uniform(5), "local": local}
    *_, last = undrift.rounds(algorithm, task, data, **options)
    ends[algorithm] = last.server.x
    _, accuracy = task.evaluate(last.server.x, last.buffers, *data.test)
    print(f"{algorithm}: {accuracy:.1%} right")

assert torch.equal(ends[undrift.FedAvg()], ends[FedCM(alpha=1.0)])
print("with alpha=1 it is FedAvg, bit for bit")
