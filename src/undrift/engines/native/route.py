"""The local steps of some clients, walked as one call that holds no lock of Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.engines.native.program import Program
from undrift.engines.native.rule import Step

CHUNK_BYTES = 2**25
"""Once so many bytes of transformed inputs are made, the steps that read them run."""


class Part(NamedTuple):
    """Steps of one client that share program and rule."""

    program: Program
    step: Step
    inputs: Tensor
    targets: Tensor
    rows: Tensor
    """for every step, the places of its batch in inputs and targets"""
    losses: list[float]
    """where the mean loss of each step goes"""


@dataclass
class Route:
    """Parts that are still to be walked, in order."""

    stop: Tensor
    parts: list[Part] = field(default_factory=list)
    made: int = 0
    """bytes of the inputs that were made for them"""

    def add(self, part: Part, made: bool) -> None:
        """Put a part at the end; with many inputs made, all are walked at once."""
        self.parts.append(part)
        self.made += part.inputs.nbytes if made else 0
        if self.made >= CHUNK_BYTES:
            self.walk()

    def walk(self) -> None:
        if not self.parts:
            return
        programs, steps, inputs, targets, rows, losses = zip(*self.parts, strict=True)
        found = torch.ops.undrift.walk.default(
            [program.handle for program in programs],
            [step.handle for step in steps],
            [vector for step in steps for vector in step.vectors],
            [constant for step in steps for constant in step.recipe.constants],
            inputs,
            targets,
            rows,
            self.stop,
        ).tolist()
        begin = 0
        for some, into in zip(rows, losses, strict=True):
            end = begin + some.shape[0]
            into += found[begin:end]
            begin = end
        self.parts.clear()
        self.made = 0
