"""Samples of a data set, before they are distributed to clients."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from undrift.data.federated import Transform, described
from undrift.data.html import facts_table
from undrift.later import Tensor, np, torch

if TYPE_CHECKING:
    from undrift.data.encoding import Column


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """Training and test samples, and their metadata.

    client_ids     owner of each training sample, if the data have natural owners
    coarse         coarse label of each fine label, if the data have both
    transform      from stored inputs to model inputs
    class_names    what each class is called, if known
    normalisation  how the columns of a table became inputs
    note           one sentence on what was done to the samples, shown when a run starts
    """

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int
    client_ids: np.ndarray | None = None
    coarse: np.ndarray | None = None
    transform: Transform | None = None
    class_names: tuple[str, ...] | None = None
    normalisation: tuple[Column, ...] | None = None
    note: str | None = None

    def load(self, seed: int) -> Source:
        """Itself: a source can be used in place of a data set."""
        return self

    def __repr__(self) -> str:
        """Short, with a checksum: an experiment's identity depends on it."""
        parts: tuple[Tensor, ...]
        parts = (self.inputs, self.targets, self.test_inputs, self.test_targets)
        if self.client_ids is not None:
            parts += (torch.from_numpy(np.unique(self.client_ids, return_inverse=True)[1]),)
        return f"Source({len(self.targets)} samples, checksum {checksum(*parts)})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        facts: dict[str, object] = {
            "training samples": f"{len(self.targets):,}",
            "test samples": f"{len(self.test_targets):,}",
            "inputs": described(self.inputs),
        }
        if self.targets.is_floating_point():
            facts["values to predict"] = self.classes
        else:
            facts["classes"] = self.classes
        if self.client_ids is not None:
            facts["natural clients"] = f"{len(np.unique(self.client_ids)):,}"
        return facts_table("Source", facts, self.note)


@runtime_checkable
class DataSet(Protocol):
    """Anything that loads samples, such as `Digits()`."""

    def load(self, seed: int) -> Source:
        """The samples; only synthetic data depend on the seed."""
        ...


def checksum(*parts: Tensor | np.ndarray) -> str:
    """CRC-32 of all bytes of tensors and arrays, 8 hex digits."""
    total = 0
    for part in parts:
        flat = torch.as_tensor(part).detach().cpu().contiguous().reshape(-1)
        total = zlib.crc32(flat.view(torch.uint8).numpy().data if len(flat) else b"", total)
    return f"{total:08x}"
