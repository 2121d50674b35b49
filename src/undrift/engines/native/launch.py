"""Launches: run the local steps of several clients in one C++ call, without the GIL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.engines.native.program import Program
from undrift.engines.native.step import BoundStep
from undrift.training.trainer import Work, named

CHUNK_BYTES = 2**25
"""Limit for transformed inputs in a queue, in bytes: the queue runs when it is reached."""


class Launch(NamedTuple):
    """Consecutive steps of one client with the same program and kernel.

    rows    one row per step: positions of its batch in inputs and targets
    losses  list to which the mean loss of each step is added
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
    """Launches to run, in order.

    stop  set to 1 by the engine to abort
    made  bytes of transformed inputs in the queue
    """

    stop: Tensor
    launches: list[Launch] = field(default_factory=list)
    made: int = 0

    def add(self, launch: Launch) -> None:
        """Append a launch; the queue runs if it holds CHUNK_BYTES of transformed inputs."""
        self.launches.append(launch)
        if launch.inputs is not launch.work.data.inputs:
            self.made += launch.inputs.nbytes
            if self.made >= CHUNK_BYTES:
                self.run()

    def drop(self, work: Work) -> None:
        """Remove a client's launches."""
        self.launches = [launch for launch in self.launches if launch.work is not work]

    def run(self) -> None:
        """Run and remove all launches; an error names the client whose launch failed."""
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
