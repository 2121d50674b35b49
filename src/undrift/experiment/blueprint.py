"""What a task is made from, apart from data: enough to build it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from undrift.models import Model
from undrift.rng import torch_stream
from undrift.training.losses import OwnLoss, Predicts

if TYPE_CHECKING:
    from undrift.training.task import Task


@dataclass(frozen=True)
class Blueprint:
    """The model and loss of a task, for samples of a shape and a number of classes.

    predicts  what the outputs stand for
    words     the word of each token id, where samples are texts and their words are known
    """

    model: Model
    loss: str | OwnLoss
    predicts: Predicts | None
    shape: tuple[int, ...]
    classes: int
    words: tuple[str, ...] = ()

    def build(self, seed: int) -> Task:
        """The task, with the initial model of a seed."""
        from undrift.training.task import Task

        with torch_stream(seed, "initial model"):
            model = self.model.build(self.shape, self.classes, self.words)
        loss = self.loss if isinstance(self.loss, str) else self.loss.function()
        return Task(model, loss, predicts=self.predicts)
