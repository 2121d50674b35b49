"""Similarity: the base of FedGLAD and FedExP."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.core import Part


@dataclass(frozen=True)
class Similarity(Part):
    """Rescales the mean update by how much the updates agree: Σ w_k ||g_k||² beside ||ḡ||²."""

    rank = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.inner
        while isinstance(inner, Part):
            if type(inner).combine is not Part.combine:
                self.refuse("the similarity is defined for weighted means only", inner=self.inner)
            inner = inner.inner
