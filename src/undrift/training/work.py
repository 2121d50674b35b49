"""Local work: number and size of a client's steps, and their mini-batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

from undrift.config import Config, choice, real, whole
from undrift.later import np
from undrift.rng import stream

Batch: TypeAlias = "np.ndarray"
"""Positions in the client's own samples."""


@dataclass(frozen=True)
class Local(Config):
    """Local training of a client in one round.

    lr, lr_decay   step size eta_t = lr * lr_decay^(t-1) in round t
    weight_decay   coupled L2, added to every gradient
    batch_size     samples per mini-batch
    epochs, steps  amount of work: passes over the client's data (may be fractional), or the
                   number of steps of every client; give one of them; default: 1 epoch
    batching       how batches are drawn; all but "full" shuffle in every epoch:
                   "bootstrap"  fill the last batch up with random samples of the client (AdaBest)
                   "wrap"       continue with the next epoch's order (FedGBO)
                   "drop"       drop a last batch that is smaller (FedGLAD)
                   "keep"       keep a last batch that is smaller
                   "full"       all samples in every batch
    """

    _: KW_ONLY
    lr: float = real(0.1, gt=0, tune="log(0.01, 1)")
    lr_decay: float = real(1.0, gt=0, le=1)
    weight_decay: float = real(0.0, ge=0)
    batch_size: int = whole(32, ge=1)
    epochs: float | None = real(None, gt=0, le=1_000_000, optional=True)
    steps: int | None = whole(None, ge=1, le=1_000_000, optional=True)
    batching: str = choice("bootstrap", "wrap", "drop", "keep", "full")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None and self.steps is not None:
            self.refuse("give epochs or steps, not both", epochs=self.epochs, steps=self.steps)

    @property
    def fills(self) -> bool:
        """Whether batches repeat samples of a client that has fewer than `batch_size`."""
        return self.batching in ("bootstrap", "wrap")

    def lr_at(self, t: int) -> float:
        """The step size of round t."""
        return self.lr * self.lr_decay ** (t - 1)

    def plan(self, seed: int, t: int, client: int, n: int) -> Sequence[Batch] | np.ndarray:
        """The mini-batches of a client with n samples in round t, one row per local step."""
        if self.batching == "full":
            return np.tile(np.arange(n), (self.count(1), 1))
        rng = stream(seed, "batches", t, client)
        size = self.batch_size if self.fills else min(self.batch_size, n)
        per_epoch = n // size if self.batching == "drop" else math.ceil(n / size)
        count = self.count(per_epoch)
        if self.batching == "wrap":
            passes = [rng.permutation(n) for _ in range(math.ceil(count * size / n))]
            return np.concatenate(passes)[: count * size].reshape(count, size)
        if self.batching == "keep" and n % size:
            orders = (rng.permutation(n) for _ in range(math.ceil(count / per_epoch)))
            ends = range(size, n, size)
            return [batch for order in orders for batch in np.split(order, ends)][:count]
        epochs = []
        for _ in range(math.ceil(count / per_epoch)):
            order = rng.permutation(n)[: per_epoch * size]
            if len(order) < per_epoch * size:
                order = np.concatenate([order, rng.integers(n, size=size - n % size)])
            epochs.append(order.reshape(per_epoch, size))
        return np.concatenate(epochs)[:count]

    def count(self, per_epoch: int) -> int:
        """Number of local steps, given the number of batches per epoch."""
        if self.steps is not None:
            return self.steps
        return max(1, round((1.0 if self.epochs is None else self.epochs) * per_epoch))
