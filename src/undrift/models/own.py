"""Users' own networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.config import UndriftError
from undrift.config.calls import OwnCall
from undrift.later import nn
from undrift.models.model import Model, Shape


@dataclass(frozen=True)
class OwnModel(OwnCall, Model):
    """A class or function that makes an `nn.Module`; it is given what `build` has, if it asks."""

    offers = ("shape", "classes", "words")

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        made = self.call(shape=shape, classes=classes, words=words)
        if not isinstance(made, nn.Module):
            raise UndriftError(f"{self!r} made {type(made).__name__}, not a torch.nn.Module")
        return made
