"""ServerOpt: an optimiser on the server, and the usual ones by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Signature, getdoc, signature
from typing import Any, Literal

from undrift.algorithms.fedavg import FedAvg
from undrift.core import Part, RoundFacts, Struct, UndriftError, Vector, Weights, member
from undrift.optim import SGD, Adagrad, Adam, HeavyBall, Optimiser, RMSProp, SGDm, Yogi


@dataclass(frozen=True)
class ServerOpt(Part):
    """The server treats the descent direction d of any algorithm as a gradient.

    `ServerOpt(a, SGD(lr=0.5))` is algorithm a with a server learning rate of 0.5. Squared-gradient
    accumulators see d as it is without FedGLAD's rescaling. v starts at eps^2 unless v0 is given.

    Neutral: SGD().
    Cost: |s| kept by the server.
    Deviations: none.
    Reference: Reddi et al., Adaptive federated optimization, ICLR 2021,
    https://arxiv.org/abs/2003.00295; Hsu et al., Measuring the effects of non-identical data
    distribution for federated visual classification, 2019, https://arxiv.org/abs/1909.06335.

    >>> undrift.algorithm("ServerOpt(FedProx(mu=0.1), Yogi(lr=0.01))")
    ServerOpt(FedProx(mu=0.1), Yogi(lr=0.01))
    """

    optimiser: Optimiser = member(Optimiser, SGD())

    rank = 2

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        stats = self.optimiser.init(x, v0=self.optimiser.eps**2)
        return self.inner.init_server(x, groups) | Struct(server_opt=stats)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = self.inner.update(s, mean, round)
        raw = d
        if mean.raw is not mean.delta:
            raw, _ = self.inner.update(s, mean | Struct(delta=mean.raw), round)
        step, stats = self.optimiser.step(s.server_opt, d, raw)
        return self.optimiser.lr * step, changes | Struct(server_opt=stats)


def FedAvgM(
    beta: float = 0.9,
    lr: float = 1.0,
    *,
    form: Literal["heavy_ball", "ema"] = "heavy_ball",
    weights: Weights = "samples",
) -> ServerOpt:
    """FedAvg with server momentum, m <- beta m + g; form="ema" has beta m + (1 - beta) g.

    Neutral: beta=0.
    Reference: Hsu et al., Measuring the effects of non-identical data distribution for federated
    visual classification, 2019, https://arxiv.org/abs/1909.06335.

    >>> undrift.algorithm("FedAvgM(beta=0.5)")
    ServerOpt(FedAvg(), HeavyBall(beta=0.5))
    """
    forms = {"heavy_ball": HeavyBall, "ema": SGDm}
    if form not in forms:
        raise UndriftError(f"FedAvgM(form={form!r}): form must be one of 'heavy_ball', 'ema'")
    return ServerOpt(FedAvg(weights=weights), forms[form](lr=lr, beta=beta))


def _fedopt(optimiser: type[Optimiser]) -> Callable[..., ServerOpt]:
    """FedAvg with one optimiser on the server, as a function of the optimiser's options."""

    def make(lr: float = 0.01, *, weights: Weights = "samples", **options: Any) -> ServerOpt:
        return ServerOpt(FedAvg(weights=weights), optimiser(lr=lr, **options))

    own, inner = signature(make).parameters, signature(optimiser).parameters
    options = [parameter for name, parameter in inner.items() if name not in own]
    make.__signature__ = Signature([own["lr"], own["weights"], *options])  # type: ignore[attr-defined]
    make.__name__ = f"Fed{optimiser.__name__}"
    rule, *_ = (getdoc(optimiser) or "").split("\n")
    make.__doc__ = f"""FedAvg with {optimiser.__name__} on the server.

    {rule}

    Reference: Reddi et al., Adaptive federated optimization, ICLR 2021,
    https://arxiv.org/abs/2003.00295.

    >>> undrift.algorithm("{make.__name__}(lr=0.1)")
    ServerOpt(FedAvg(), {optimiser.__name__}(lr=0.1))
    """
    return make


FedAdagrad = _fedopt(Adagrad)
FedAdam = _fedopt(Adam)
FedRMSProp = _fedopt(RMSProp)
FedYogi = _fedopt(Yogi)
