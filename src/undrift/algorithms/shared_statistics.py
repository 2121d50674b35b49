"""SharedStatistics and StillStatistics: the bases of FedGBO, MFL, MimeLite and Mime."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Algorithm, Client, Struct, Vector, Weights, choice, member
from undrift.optim import Optimiser, SGDm


@dataclass(frozen=True)
class SharedStatistics(Algorithm):
    """Base of the algorithms that send the optimiser's statistics along with the model."""

    optimiser: Optimiser = member(Optimiser, SGDm())
    _: KW_ONLY
    weights: Weights = choice("uniform", "samples")

    def __post_init__(self) -> None:
        super().__post_init__()
        if getattr(self.optimiser, "bias_correction", False):
            self.refuse("shared statistics take no bias correction", optimiser=self.optimiser)

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return super().init_server(x, groups) | Struct(stats=self.optimiser.init(x, v0=1.0))

    def download(self, s: Struct) -> Struct:
        return super().download(s) | Struct(stats=s.stats)


@dataclass(frozen=True)
class StillStatistics(SharedStatistics):
    """Base of the algorithms whose clients step with the statistics held still: U, K times."""

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        rate = client.lr * self.optimiser.lr
        return local | Struct(y=local.y - rate * self.optimiser.use(down.stats, d))
