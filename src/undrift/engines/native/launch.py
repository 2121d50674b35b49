"""Launches: the local steps of some clients, run as one call that holds no lock of Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.engines.native.program import Program
from undrift.engines.native.step import BoundStep
from undrift.training.trainer import Work, named

CHUNK_BYTES = 2**25
"""Once so many bytes of transformed inputs are made, the steps that read them run."""


class Launch(NamedTuple):
    """Steps of one client that share program and kernel.

    rows    for every step, the places of its batch in inputs and targets
    losses  where the mean loss of each step goes
    """

    work: Work
    program: Program
    bound: BoundStep
    inputs: Tensor
    targets: Tensor
    rows: Tensor
    losses: list[float]


@dataclass
class LaunchQueue:
    """Launches that are still to be run, in order.

    stop  1 once nobody waits for the results any more
    made  bytes of the inputs that were made for them
    """

    stop: Tensor
    launches: list[Launch] = field(default_factory=list)
    made: int = 0

    def add(self, launch: Launch) -> None:
        """Put a launch at the end; with many inputs made, all run at once."""
        self.launches.append(launch)
        if launch.inputs is not launch.work.data.inputs:
            self.made += launch.inputs.nbytes
            if self.made >= CHUNK_BYTES:
                self.run()

    def drop(self, work: Work) -> None:
        """Take a client's launches out."""
        self.launches = [launch for launch in self.launches if launch.work is not work]

    def run(self) -> None:
        """Run all; an error names its client."""
        if not self.launches:
            return
        works, programs, bound, inputs, targets, rows, losses = zip(*self.launches, strict=True)
        self.launches, self.made = [], 0
        try:
            found = torch.ops.undrift.launch.default(
                [program.handle for program in programs],
                [one.handle for one in bound],
                [vector for one in bound for vector in one.vectors],
                [constant for one in bound for constant in one.step.constants],
                inputs,
                targets,
                rows,
                self.stop,
            ).tolist()
        except Exception:
            with named(works[torch.ops.undrift.failed_launch()], "local steps"):
                raise
        begin = 0
        for some, into in zip(rows, losses, strict=True):
            end = begin + some.shape[0]
            into += found[begin:end]
            begin = end
