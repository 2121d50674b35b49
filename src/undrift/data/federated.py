"""Samples once in memory; a client is a slice of one index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from undrift.arithmetic import aligned
from undrift.config import UndriftError
from undrift.later import Tensor, torch

Transform = Callable[[Tensor, np.random.Generator | None], Tensor]
"""A batch of inputs as stored to what the model is given: scaling, and augmentation where there is
a generator to draw from, that is, in local training."""


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """Training samples shared out among clients, and test samples for everybody.

    Client i holds the samples `order[offsets[i] : offsets[i + 1]]` of `inputs` and `targets`.
    Inputs stay as they are stored, pixels as bytes, until `transform` makes a batch of them.
    """

    inputs: Tensor
    targets: Tensor
    order: np.ndarray
    offsets: np.ndarray
    test_inputs: Tensor
    test_targets: Tensor
    transform: Transform | None = None
    held_out: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """samples of the clients that validate and do not train"""

    def __post_init__(self) -> None:
        for name in ("inputs", "targets", "test_inputs", "test_targets"):
            tensor = getattr(self, name)
            if tensor.is_floating_point():  # others are looked up or converted, never multiplied
                object.__setattr__(self, name, aligned(tensor))

    @classmethod
    def split(
        cls,
        train: tuple[Any, Any],
        test: tuple[Any, Any],
        parts: Sequence[np.ndarray],
        transform: Transform | None = None,
        held_out: Sequence[np.ndarray] = (),
    ) -> FederatedData:
        """Share samples out: `parts` has the sample numbers of each client.

        held_out  those of the clients that do not train
        """
        order, held = (
            np.concatenate([np.empty(0, np.int64), *some]).astype(np.int64, copy=False)
            for some in (parts, held_out)
        )
        offsets = np.cumsum([0, *(len(part) for part in parts)])
        tensors = [torch.as_tensor(array) for array in (*train, *test)]
        return cls(tensors[0], tensors[1], order, offsets, tensors[2], tensors[3], transform, held)

    @classmethod
    def of_clients(
        cls, clients: Sequence[tuple[Any, Any]], test: tuple[Any, Any] | None = None
    ) -> FederatedData:
        """Data that clients already hold, as one (inputs, targets) pair each."""
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
        shape, kind = tuple(self.inputs.shape[1:]), str(self.inputs.dtype).removeprefix("torch.")
        sizes = sorted(set(self.sizes.tolist()))
        each = " to ".join(map(str, dict.fromkeys(sizes[:1] + sizes[-1:]))) or "no"
        parts = [f"{len(self)} clients with {each} samples", f"inputs {kind} of shape {shape}"]
        parts += [f"{len(self.held_out)} samples held out"] if len(self.held_out) else []
        return f"FederatedData({', '.join(parts)}, {len(self.test_targets)} to test on)"

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """Samples of each client."""
        return np.diff(self.offsets)

    @property
    def fixed(self) -> bool:
        """Whether the transform makes the same of a sample whenever and with whomever it comes."""
        return bool(getattr(self.transform, "fixed", False))

    def rows(self, i: int) -> np.ndarray:
        """The samples of client i, as places in `inputs` and `targets`."""
        return self.order[self.offsets[i] : self.offsets[i + 1]]

    def client(self, i: int) -> tuple[Tensor, Tensor]:
        """Inputs, as stored, and targets of client i."""
        return self.take(self.rows(i))

    def batch(
        self, rows: np.ndarray, rng: np.random.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Inputs, as the model gets them, and targets; augmented where there is a generator."""
        inputs, targets = self.take(rows)
        return self.transform(inputs, rng) if self.transform else inputs, targets

    def take(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs, as stored, and targets of some samples."""
        places = torch.from_numpy(rows).to(self.targets.device)
        return self.inputs[places], self.targets[places]

    @property
    def example(self) -> Tensor:
        """A batch of one sample, as the model gets it."""
        one = self.inputs[:1]
        return self.transform(one, None) if self.transform else one

    @property
    def validation(self) -> tuple[Tensor, Tensor, Transform | None]:
        """All inputs and targets that are held out, and how to make batches of them."""
        rows = torch.from_numpy(self.held_out).to(self.targets.device)
        return self.inputs[rows], self.targets[rows], self.transform

    @property
    def test(self) -> tuple[Tensor, Tensor, Transform | None]:
        """Test inputs and targets, and how to make batches of them."""
        return self.test_inputs, self.test_targets, self.transform

    @cached_property
    def label_counts(self) -> np.ndarray:
        """Samples of each class (columns) at each client (rows)."""
        labels = self.targets.cpu().numpy()[self.order].astype(np.int64)
        owners = np.repeat(np.arange(len(self)), self.sizes)
        counts = np.zeros((len(self), int(self.targets.max()) + 1), dtype=np.int64)
        np.add.at(counts, (owners, labels), 1)
        return counts

    def to(self, device: str | torch.device) -> FederatedData:
        """The same data on another device."""
        tensors = (self.inputs, self.targets, self.test_inputs, self.test_targets)
        inputs, targets, test_inputs, test_targets = (tensor.to(device) for tensor in tensors)
        return replace(
            self, inputs=inputs, targets=targets, test_inputs=test_inputs, test_targets=test_targets
        )
