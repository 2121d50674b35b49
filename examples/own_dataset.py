"""A data set of your own: whatever has `load(seed)`. Arrays alone need no class: `from_arrays`."""

from dataclasses import dataclass

import numpy as np

import undrift
from undrift.core import Config, whole
from undrift.data.own import from_arrays
from undrift.data.source import Source
from undrift.models import MLP


@dataclass(frozen=True)
class Motors(Config):
    """Vibrations of motors, a client each, that run smoothly (0), unevenly (1) or worn (2)."""

    motors: int = whole(40, ge=2)
    samples: int = whole(50, ge=5)

    def load(self, seed: int) -> Source:
        rng = np.random.default_rng(seed)
        n = self.motors * self.samples
        owners = np.repeat(np.arange(self.motors), self.samples)
        speed, loudness = rng.uniform(2, 4, self.motors), rng.uniform(0.5, 2, self.motors)
        habits = rng.dirichlet([0.3] * 3, self.motors)  # a motor is mostly in one state
        states = (rng.random((n, 1)) > habits.cumsum(1)[owners]).sum(1).clip(max=2)
        angle = speed[owners, None] * np.linspace(0, 2 * np.pi, 32) + rng.uniform(0, 6, (n, 1))
        waves = np.sin(angle) + 0.7 * np.sin(2 * angle) * (states == 1)[:, None]
        waves += 0.7 * np.sin(3 * angle) * (states == 2)[:, None]
        noise = rng.normal(0, 0.2, waves.shape)
        return from_arrays(loudness[owners, None] * waves + noise, states, owners, seed=seed)


experiment = undrift.Experiment(
    algorithms=["fedavg", "adabest"],
    data=Motors(),
    partition=undrift.Natural(),
    model=MLP(hidden=(50,)),
    local=undrift.Local(lr=0.1, epochs=5, batch_size=10),
    sampler=undrift.Uniform(4),
    rounds=60,
)
task, data = experiment.prepare(seed=0)
print(f"{len(data)} motors with {data.sizes.mean():.0f} recordings each")
for algorithm in experiment.algorithms:
    *_, last = undrift.Trial(experiment, algorithm, 0, task, data).rows()
    print(f"{algorithm}: {last['accuracy']:.1%} right after {last['round']} rounds")
