"""Losses by name, and users' own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from undrift.config import UndriftError, unknown
from undrift.config.calls import OwnCall
from undrift.config.expressions import parse
from undrift.config.own import references
from undrift.later import Tensor, nn

Loss = Callable[[Any, Tensor], Tensor]
"""loss(outputs, targets): the mean over the batch."""

Predicts = Literal["classes", "tokens", "values"]
"""One class per sample, one token per place in a text, or numbers."""

PADDING = -100
"""Target id ignored by loss and accuracy (torch's `ignore_index`)."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of the softmax of scores (N, C), for targets (N,)."""
    return nn.functional.cross_entropy(outputs, targets)


def next_token(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over all tokens except PADDING: scores (N, C, T), targets (N, T)."""
    scores, tokens = outputs.transpose(1, 2).flatten(0, 1), targets.flatten().long()
    total = nn.functional.cross_entropy(scores, tokens, ignore_index=PADDING, reduction="sum")
    return total / (tokens != PADDING).sum().clamp(min=1)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the mean squared error."""
    return 0.5 * mse(outputs, targets)


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error."""
    return ((outputs.reshape(targets.shape) - targets) ** 2).mean()


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "next_token": next_token,
    "squared_error": squared_error,
    "mse": mse,
}

PREDICTS: dict[str, Predicts] = {"cross_entropy": "classes", "next_token": "tokens"}
"""what the outputs of a loss stand for; those of others are values"""


def refuse_unfit(loss: str, targets: Tensor) -> None:
    """Raise if a loss by name cannot be that of these targets."""
    numbers = targets.is_floating_point()
    if numbers == (loss in PREDICTS):
        found, such = ("numbers", "mse") if numbers else ("classes", "cross_entropy")
        raise UndriftError(f"loss={loss!r}: the targets are {found}; use {such!r} or your own loss")


def suitable_loss(targets: Tensor) -> str:
    """The name of the loss for float targets, rows of tokens, or one class per sample."""
    if targets.is_floating_point():
        return "squared_error"
    return "next_token" if targets.ndim > 1 else "cross_entropy"


@dataclass(frozen=True)
class OwnLoss(OwnCall):
    """A user's own loss: a function of outputs and targets, or a class whose objects are such."""

    def _offered(self, known: inspect.Signature) -> Sequence[str]:
        """Of a function the first two parameters, whatever it calls them."""
        return [] if isinstance(self.make, type) else list(known.parameters)[:2]

    def function(self) -> Loss:
        """The loss; outputs (N, 1) get the shape of targets (N,), as nobody wants (N, N)."""
        bound = functools.partial(self.make, **dict(self.options))
        own: Loss = self.call() if isinstance(self.make, type) else bound

        def loss(outputs: Any, targets: Tensor) -> Tensor:
            alike = targets.is_floating_point() and outputs.numel() == targets.numel()
            return own(outputs.reshape(targets.shape) if alike else outputs, targets)

        return loss


def loss(text: str) -> str | OwnLoss:
    """The loss that a text names: one of LOSSES, or `./nets.py:huber(delta=2.0)`."""
    if text in LOSSES:
        return text
    if not any(references(text)):
        raise UndriftError(unknown("loss", text, LOSSES) + "; or your own, ./mine.py:NAME")
    made: OwnLoss = parse(text, {}, "loss", adapt=OwnLoss.adapt)
    return made
