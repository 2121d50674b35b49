"""All samples in memory once; each client is a slice of one index array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from undrift.arithmetic import aligned
from undrift.config import UndriftError
from undrift.data.html import facts_table
from undrift.later import Tensor, np, torch

Transform: TypeAlias = "Callable[[Tensor, np.random.Generator | None], Tensor]"
"""Stored inputs of a batch to model inputs: scaling, and in local training, where a generator is
given, augmentation."""

SampleSet = Literal["test", "validation"]


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """Training samples of all clients, and common test samples.

    Client i holds the samples `order[offsets[i] : offsets[i + 1]]` of `inputs` and `targets`.
    Inputs are kept as stored (pixels as bytes); `transform` converts them batch by batch.
    """

    inputs: Tensor
    targets: Tensor
    order: np.ndarray
    offsets: np.ndarray
    test_inputs: Tensor
    test_targets: Tensor
    transform: Transform | None = None
    held_out: Sequence[np.ndarray] = ()
    """indices of the samples of each validation client, none of which train"""
    class_names: tuple[str, ...] | None = None
    """what each class is called, if known"""
    client_names: tuple[str, ...] | None = None
    """ids of the clients in the data set; None if the partition made them up"""
    note: str | None = None
    """one sentence on what was done to the samples, shown when a run starts"""
    own_tests: Sequence[np.ndarray] = ()
    """indices of each client's own test samples, which do not train either; empty if it has none"""
    available: Callable[[int], Sequence[int]] | None = None
    """round → clients that can be drawn in it, where some may be away; None: all"""

    def __post_init__(self) -> None:
        for name in ("inputs", "targets", "test_inputs", "test_targets"):
            tensor = getattr(self, name).contiguous()  # a batch is copied row by row
            if tensor.is_floating_point():  # others are looked up or converted, never multiplied
                tensor = aligned(tensor)
            object.__setattr__(self, name, tensor)

    @classmethod
    def split(
        cls,
        train: tuple[Any, Any],
        test: tuple[Any, Any],
        parts: Sequence[np.ndarray],
        transform: Transform | None = None,
        held_out: Sequence[np.ndarray] = (),
        **more: Any,
    ) -> FederatedData:
        """Distribute samples: `parts` has the sample indices of each client.

        held_out  those of the validation clients
        more      other fields
        """
        order, offsets = _joined(parts), np.cumsum([0, *(len(part) for part in parts)])
        tensors = [torch.as_tensor(array) for array in (*train, *test)]
        x, y, test_x, test_y = tensors
        return cls(x, y, order, offsets, test_x, test_y, transform, held_out, **more)

    @classmethod
    def of_clients(
        cls, clients: Sequence[tuple[Any, Any]], test: tuple[Any, Any] | None = None
    ) -> FederatedData:
        """From one (inputs, targets) pair per client."""
        if not clients:
            raise UndriftError("clients=[]: give at least one client's (inputs, targets)")
        pairs = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in clients]
        for i, (x, y) in enumerate(pairs):
            if len(x) != len(y):
                raise UndriftError(f"client {i} has {len(x)} inputs but {len(y)} targets")
        inputs, targets = (torch.cat([pair[k] for pair in pairs]) for k in (0, 1))
        offsets = np.cumsum([0, *(len(y) for _, y in pairs)])
        order = np.arange(len(targets))
        ends = (inputs[:0], targets[:0]) if test is None else map(torch.as_tensor, test)
        return cls(inputs, targets, order, offsets, *ends)

    def __repr__(self) -> str:
        sizes = sorted(set(self.sizes.tolist()))
        each = " to ".join(map(str, dict.fromkeys(sizes[:1] + sizes[-1:]))) or "no"
        parts = [f"{len(self)} clients with {each} samples", f"inputs {described(self.inputs)}"]
        parts += [f"{len(self.all_held_out)} samples held out"] if self.held_out else []
        return f"FederatedData({', '.join(parts)}, {len(self.test_targets)} to test on)"

    def _repr_html_(self) -> str:
        """For notebooks."""
        sizes = self.sizes if len(self) else np.zeros(1)
        facts: dict[str, object] = {
            "clients": f"{len(self):,}",
            "samples per client (min, median, max)": ", ".join(
                f"{value:,.10g}" for value in (sizes.min(), np.median(sizes), sizes.max())
            ),
            "inputs": described(self.inputs),
        }
        if self.targets.ndim == 1 and not self.targets.is_floating_point() and len(self.targets):
            facts["classes"] = self.label_counts.shape[1]
        if self.held_out:
            facts["validation samples"] = f"{len(self.all_held_out):,}"
        facts["test samples"] = f"{len(self.test_targets):,}"
        return facts_table("FederatedData", facts, self.note)

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of samples of each client."""
        return np.diff(self.offsets)

    @property
    def fixed(self) -> bool:
        """Whether the transform of a sample never changes: no augmentation, no batch effects."""
        return bool(getattr(self.transform, "fixed", False))

    def rows(self, i: int) -> np.ndarray:
        """Indices of client i's samples in `inputs` and `targets`."""
        return self.order[self.offsets[i] : self.offsets[i + 1]]

    def own_rows(self, i: int) -> np.ndarray:
        """Indices of the samples that client i is measured on: its test samples, else all."""
        return self.own_tests[i] if self.own_tests else self.rows(i)

    def client(self, i: int) -> tuple[Tensor, Tensor]:
        """Stored inputs and targets of client i."""
        return self.take(self.rows(i))

    def batch(
        self, rows: np.ndarray, rng: np.random.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Model inputs and targets of these samples; augmented if a generator is given."""
        inputs, targets = self.take(rows)
        return self.transform(inputs, rng) if self.transform else inputs, targets

    def take(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Stored inputs and targets of these samples."""
        places = torch.from_numpy(rows).to(self.targets.device)
        return self.inputs[places], self.targets[places]

    @property
    def example(self) -> Tensor:
        """Model input for a batch of one sample."""
        one = self.inputs[:1]
        return self.transform(one, None) if self.transform else one

    @cached_property
    def all_held_out(self) -> np.ndarray:
        """Indices of the samples of all validation clients."""
        return _joined(self.held_out)

    @property
    def validation(self) -> tuple[Tensor, Tensor, Transform | None]:
        """Stored inputs and targets of all validation clients, and the transform."""
        return self.part_of("validation", slice(None))

    @property
    def test(self) -> tuple[Tensor, Tensor, Transform | None]:
        """Stored test inputs and targets, and the transform."""
        return self.test_inputs, self.test_targets, self.transform

    @cached_property
    def label_counts(self) -> np.ndarray:
        """Number of samples per client (rows) and class (columns)."""
        labels = self.targets.cpu().numpy()[self.order].astype(np.int64)
        owners = np.repeat(np.arange(len(self)), self.sizes)
        counts = np.zeros((len(self), int(self.targets.max()) + 1), dtype=np.int64)
        np.add.at(counts, (owners, labels), 1)
        return counts

    def part_of(self, samples: SampleSet, part: slice) -> tuple[Tensor, Tensor, Transform | None]:
        """Some of the common test samples, or of those of the validation clients."""
        if samples == "validation":
            return *self.take(self.all_held_out[part]), self.transform
        return self.test_inputs[part], self.test_targets[part], self.transform

    def count_of(self, samples: SampleSet) -> int:
        """How many test or validation samples there are."""
        return len(self.all_held_out if samples == "validation" else self.test_targets)

    @cached_property
    def test_label_counts(self) -> np.ndarray:
        """Number of test samples per class."""
        labels = self.test_targets.cpu().numpy().astype(np.int64).ravel()
        return np.bincount(labels[labels >= 0], minlength=self.label_counts.shape[1])

    def to(self, device: str | torch.device) -> FederatedData:
        """The same data on another device."""
        tensors = (self.inputs, self.targets, self.test_inputs, self.test_targets)
        inputs, targets, test_inputs, test_targets = (tensor.to(device) for tensor in tensors)
        return replace(
            self, inputs=inputs, targets=targets, test_inputs=test_inputs, test_targets=test_targets
        )


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64, copy=False)


def described(samples: Tensor) -> str:
    """Type and shape of a sample: `float32 of shape (64,)`."""
    return f"{samples.dtype} of shape {tuple(samples.shape[1:])}".removeprefix("torch.")
