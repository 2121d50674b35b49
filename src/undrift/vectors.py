"""Norms, angles and group-wise sums of vectors."""

from __future__ import annotations

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


def safe_beta(square: Any, mean: Vector, cohort: int) -> float:
    """The decay beta at which a sum of past mean updates does not overshoot: 1 − 1/(ωG), ω = 3/2.

    G = min(p, Σ w_i ||g_i||² / ||Σ w_i g_i||²), between 1 (all p updates agree) and p (they have
    nothing in common), counts the updates that say something of their own. A sum that decays by
    beta moves each mean update by 1/(1 − beta) = ωG in all: best near G where clients project onto
    their own solutions, unstable beyond 2G.

    square  Σ w_i ||g_i||²
    """
    length = float(mean @ mean)
    updates = min(max(float(square) / length, 1.0), cohort) if length > 0 else cohort
    return 1 - 1 / (1.5 * updates)
