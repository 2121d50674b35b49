"""Algorithms by name: `AdaBest(mu=0.02)`, `adabest`, `fedglad+fedadam`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from undrift import algorithms, optim, parts
from undrift.algorithms.shared_statistics import SharedStatistics
from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.core import Algorithm, Part

OPTIMISERS = ("SGD", "HeavyBall", "SGDm", "Adagrad", "RMSProp", "Adam", "Yogi", "Plateau")


def around_fedavg(part: Callable[..., object]) -> Callable[..., object]:
    """The part, with FedAvg as its default inner algorithm."""

    @functools.wraps(part)
    def make(*given: object, **options: object) -> object:
        return part(*(given or (algorithms.FedAvg(),)), **options)

    takes_inner = isinstance(part, type) and issubclass(part, Part)
    return make if takes_inner else part


_PARTS = {name: getattr(parts, name) for name in parts.__all__}
GROUPS: dict[str, dict[str, Callable[..., object]]] = {
    "algorithms": {name: getattr(algorithms, name) for name in algorithms.__all__},
    "parts": {name: around_fedavg(one) for name, one in _PARTS.items() if isinstance(one, type)},
    "compositions": {name: one for name, one in _PARTS.items() if not isinstance(one, type)},
    "optimisers": {name: getattr(optim, name) for name in OPTIMISERS},
}
"""What algorithms are written with; a composition is a name for an algorithm inside a part."""

NAMES = {name: made for group in GROUPS.values() for name, made in group.items()}

ALIASES = {
    "SCAFFOLD/m": "SCAFFOLDm",
    "SCAFFOLD-M": "MomentumSCAFFOLD",
    "FedAvg-M": "FedCM",
    "local-only": "LocalOnly",
}
"""names with signs in them"""

ELSEWHERE = {
    "lr": "clients' step size is that of local work (local.lr, --lr), and the server's that of "
    "ServerOpt(FedAvg(), SGD(lr=0.5))"
}


def algorithm(text: str) -> Algorithm:
    """The algorithm with this name; the `repr` of an algorithm is a valid name.

    A part without an inner algorithm is put around FedAvg: `fedglad` is `FedGLAD(FedAvg())`.
    `SCAFFOLD/m` is `SCAFFOLDm()`, and so with the other `ALIASES`.
    """
    plain = text
    for alias, name in ALIASES.items():
        plain = re.sub(rf"(?i)(?<![\w./:-]){alias}(?![\w./:-])", name, plain)
    made = parse(plain, NAMES, elsewhere=ELSEWHERE, adapt=around_fedavg)
    if not isinstance(made, Algorithm):
        raise UndriftError(f"{text!r} is not an algorithm; put it inside one, such as ServerOpt")
    return made


def label(made: Algorithm) -> str:
    """A short name for legends: FedAdam, FedGLAD(AdaBest), without hyper-parameters."""
    if isinstance(made, parts.ServerOpt):
        inner, optimiser = label(made.inner), type(made.optimiser).__name__
        if optimiser == "SGD":
            return inner
        if inner == "FedAvg":
            return "FedAvgM" if optimiser in ("HeavyBall", "SGDm") else f"Fed{optimiser}"
        return f"ServerOpt({inner}, {optimiser})"
    if isinstance(made, Part):
        return f"{type(made).__name__}({label(made.inner)})"
    if isinstance(made, SharedStatistics):
        return f"{type(made).__name__}({type(made.optimiser).__name__})"
    return type(made).__name__


def labels(made: Sequence[Algorithm]) -> list[str]:
    """A label for each algorithm: the short name if it is unique among them, else the full one."""
    short = [label(one) for one in made]
    return [
        repr(one) if short.count(name) > 1 else name for one, name in zip(made, short, strict=True)
    ]
