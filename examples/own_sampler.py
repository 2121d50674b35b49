"""A sampler of your own: clients that are awake only when it is night where they live."""

from dataclasses import dataclass

import torch

import undrift
from undrift.core import whole
from undrift.federation.sampling import Cohort, FixedSize, Urn


@dataclass(frozen=True)
class Nights(FixedSize):
    """`clients` of those whose time zone it is; client i lives in zone i mod `zones`."""

    zones: int = whole(4, ge=1)

    def draw(self, urn: Urn) -> Cohort:
        awake = urn.registered[urn.registered % self.zones == urn.t % self.zones]
        self.check(awake)
        ids = urn.rng.choice(awake, self.clients, replace=False)
        return Cohort(tuple(sorted(ids.tolist())))


data = undrift.federate(undrift.Digits(), undrift.Dirichlet(clients=100, alpha=0.1), seed=0)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
task = undrift.Task(model)

for sampler in undrift.Uniform(5), Nights(5, zones=4), Nights(5, zones=20):
    options = {"total": 60, "local": undrift.Local(lr=0.1, epochs=5, batch_size=16)}
    *_, last = undrift.rounds(undrift.AdaBest(), task, data, sampler=sampler, **options)
    _, accuracy = task.evaluate(last.server.xbar, last.buffers, *data.test)
    print(f"{sampler}: {accuracy:.1%} right, last cohort {last.cohort}")
