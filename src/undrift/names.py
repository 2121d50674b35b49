"""Algorithms by name: `AdaBest(mu=0.02)`, `adabest`, `fedglad+fedadam`."""

from __future__ import annotations

from collections.abc import Callable

from undrift import algorithms, optim, parts
from undrift.config import UndriftError, parse
from undrift.core import Algorithm

OPTIMISERS = ("SGD", "HeavyBall", "SGDm", "Adagrad", "RMSProp", "Adam", "Yogi", "Plateau")

NAMES: dict[str, Callable[..., object]] = {
    **{name: getattr(algorithms, name) for name in algorithms.__all__},
    **{name: getattr(parts, name) for name in parts.__all__},
    **{name: getattr(optim, name) for name in OPTIMISERS},
}


def algorithm(text: str) -> Algorithm:
    """The algorithm that a text names; every algorithm's `repr` names itself.

    A part without an inner algorithm is put around FedAvg: `fedglad` is `FedGLAD(FedAvg())`.
    """
    made = parse(text, NAMES)
    if not isinstance(made, Algorithm):
        raise UndriftError(f"{text!r} is not an algorithm; put it inside one, such as ServerOpt")
    return made
