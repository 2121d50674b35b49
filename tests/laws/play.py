"""Our algorithms on the reference's problems."""

from __future__ import annotations

from typing import Any

from tests.laws.reference import Problem
from undrift.checks.plan import Plan
from undrift.checks.replay import Snapshot, replay
from undrift.core import Algorithm
from undrift.experiment.registry import algorithm as named


def play(algorithm: str | Algorithm, problem: Problem, **options: Any) -> list[Snapshot]:
    """Replay a problem of the reference with one of our algorithms."""
    batches = problem.batches or [None] * len(problem.delivering)
    plans = [
        Plan(delivers, registered, batch)
        for delivers, registered, batch in zip(
            problem.delivering, problem.registered, batches, strict=True
        )
    ]
    inputs = {
        "model": problem.loss,
        "start": problem.start,
        "groups": problem.groups,
        "lr": problem.lr,
        "lr_decay": problem.lr_decay,
        "weight_decay": problem.weight_decay,
        "steps": problem.steps,
    }
    made = named(algorithm) if isinstance(algorithm, str) else algorithm
    return replay(made, list(zip(problem.xs, problem.ys, strict=True)), plans, **inputs | options)
