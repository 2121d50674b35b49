"""Sums join: however a cohort is cut into aligned blocks, the bits are those of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from undrift.core import Algorithm, Struct
from undrift.experiment.registry import algorithm
from undrift.federation.aggregate import AllUploads, SurveyMean, Uploads


@dataclass(frozen=True)
class Alike(Algorithm):
    """An algorithm with an upload that is averaged with equal weights."""

    unweighted = ("other",)


SERVER = Struct(x=torch.zeros(3), xbar=torch.zeros(3))
KINDS: dict[str, Any] = {
    "mean": SurveyMean,
    "weighted": lambda: Uploads(Algorithm(), SERVER),
    "unweighted": lambda: Uploads(Alike(), SERVER),
    "holistic": lambda: AllUploads(algorithm("Krum(FedAvg(), f=1)"), SERVER),
}


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[float | None], list[int]]:
    """A weight for each place, None if it is empty, and the sizes of aligned blocks."""
    places = draw(st.lists(st.none() | st.floats(0.1, 10), min_size=1, max_size=40))
    sizes, at = [], 0
    while at < len(places):
        fitting = [2**k for k in range(6) if at % 2**k == 0]
        sizes.append(draw(st.sampled_from(fitting)))
        at += sizes[-1]
    return places, sizes


def fill(sums: Any, places: list[float | None], start: int) -> None:
    for at, weight in enumerate(places, start):
        value = torch.randn(3, generator=torch.Generator().manual_seed(at))
        if weight is None:
            sums.skip()
        else:
            record = Struct(delta=value, other=value**2, number=float(value[0]))
            sums.add(weight, record, Struct(buffers=value**3))


def bits(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    leaves = [part.leaves() if isinstance(part, Struct) else [("", part)] for part in parts]
    return [
        (name, value.tolist() if isinstance(value, Tensor) else value)
        for some in leaves
        for name, value in some
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(cut=cuts())
def test_any_aligned_cut_gives_the_bits_of_the_whole(
    kind: str, cut: tuple[list[float | None], list[int]]
) -> None:
    places, sizes = cut
    whole, joined = KINDS[kind](), KINDS[kind]()
    fill(whole, places, 0)
    start = 0
    for size in sizes:
        block = joined.empty()
        fill(block, places[start : start + size], start)
        joined.join(block)
        start += size
    if all(weight is None for weight in places):
        return  # such a round has no mean
    assert bits(joined.result()) == bits(whole.result())


def test_a_cut_that_is_not_aligned_is_refused() -> None:
    first, second = SurveyMean(), SurveyMean()
    fill(first, [1.0], 0)
    fill(second, [1.0, 1.0], 1)
    with pytest.raises(ValueError, match=r"2\^1 places cannot follow levels \[0\]"):
        first.join(second)
