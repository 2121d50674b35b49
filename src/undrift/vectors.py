"""Norms, angles and group-wise sums of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from undrift.core import Vector
from undrift.later import torch


def group_square_norms(x: Vector, groups: tuple[int, ...]) -> Vector:
    """The squared norm of each parameter group, as a vector with one entry a group."""
    return torch.stack([(part * part).sum() for part in x.split(groups)])


def spread(values: Vector, groups: tuple[int, ...]) -> Vector:
    """One value a group, repeated over the group's parameters."""
    return torch.cat([value.expand(size) for value, size in zip(values, groups, strict=True)])


def square_distances(points: list[Vector]) -> Vector:
    """All squared distances between vectors, as a matrix."""
    stacked = torch.stack(points)
    return torch.stack([((stacked - point) ** 2).sum(1) for point in points])


def coordinate_mean(values: Sequence[Any], cut: int) -> Any:
    """The mean of each coordinate without its `cut` largest and `cut` smallest values."""
    if isinstance(values[0], int | float):
        return float(coordinate_mean([torch.tensor(value).double() for value in values], cut))
    ordered = torch.stack(list(values)).sort(dim=0).values
    return ordered[cut : len(values) - cut].mean(0)


def cosine(a: Vector, b: Vector) -> float:
    """The cosine of the angle between two vectors; 0 if either is 0."""
    lengths = float(a.norm() * b.norm())
    return float(a @ b) / lengths if lengths > 0 else 0.0


def effective_updates(square: Any, mean: Vector, cohort: int) -> float:
    """G = Σ w_i ||g_i||² / ||Σ w_i g_i||², the number of updates that say something of their own.

    Between 1 (all p updates agree) and p (they have nothing in common), to which it is cut: it is
    larger only if updates cancel each other.

    square  Σ w_i ||g_i||²
    mean    Σ w_i g_i
    cohort  p
    """
    length = float(mean @ mean)
    return min(max(float(square) / length, 1.0), float(cohort)) if length > 0 else float(cohort)


def safe_beta(updates: float, cohort: int, age: Any) -> float:
    """The decay beta = 1 − 1/s of a sum of past mean updates, s = min(p + ½, 2 √(G min(G, a))).

    Such a sum moves each mean update by 1 + beta + beta² + ... = s in all. p updates that have
    nothing in common should count as their sum, s = p, or a little more. More than 2G is unstable
    where clients seldom come back, and where they come back after a rounds, before the sum has
    faded, they answer it: it swings ever longer beyond √(aG)/2.

    updates  G, see `effective_updates`
    cohort   p
    age      a, mean over the clients of the rounds since they last took part
    """
    limit = 2 * math.sqrt(updates * min(updates, float(age)))
    return 1 - 1 / min(cohort + 0.5, limit)
