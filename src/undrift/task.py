"""A task: an `nn.Module` and a loss, seen as functions of one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undrift.config import UndriftError, unknown
from undrift.data.federated import Transform

Loss = Callable[[Any, Tensor], Tensor]
"""Outputs and targets to the mean loss over the batch."""

CHUNK = 4096
"""Samples in one forward pass when many are evaluated at once."""


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of half the squared error."""
    return 0.5 * ((outputs.reshape(targets.shape) - targets) ** 2).mean()


LOSSES: dict[str, Loss] = {
    "cross_entropy": nn.functional.cross_entropy,
    "squared_error": squared_error,
}


class Task:
    """What clients learn.

    x0       the model's trainable parameters as one vector
    buffers0 its buffers (running statistics) as one vector, which is only ever averaged
    groups   the sizes of the parameter tensors, in order (FedGLAD's groups), or as given

    The module's parameters and their gradients are views of two flat vectors, so that a step needs
    no gathering of tensors; a task serves one thread at a time.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "cross_entropy",
        *,
        groups: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        if isinstance(loss, str) and loss not in LOSSES:
            raise UndriftError(unknown("loss", loss, LOSSES))
        self.loss: Loss = LOSSES[loss] if isinstance(loss, str) else loss
        self.classifies = loss == "cross_entropy"
        self.model = copy.deepcopy(model).to(device=device, dtype=dtype)
        self._buffers = dict(self.model.named_buffers())
        trained = {k: p for k, p in self.model.named_parameters() if p.requires_grad}
        if not trained:
            raise UndriftError("the model has no trainable parameters")
        self.names = tuple(trained)
        self.shapes = [p.shape for p in trained.values()]
        self.sizes = [p.numel() for p in trained.values()]
        self.x0 = torch.cat([p.detach().reshape(-1) for p in trained.values()])
        self.groups = tuple(self.sizes) if groups is None else tuple(groups)
        if sum(self.groups) != len(self.x0):
            raise UndriftError(
                f"groups={self.groups} add up to {sum(self.groups)}, "
                f"but the model has {len(self.x0)} trainable parameters"
            )
        self.buffers0 = self.pack(self._buffers)
        self._slots = [_owner(self.model, name) for name in self._buffers]
        self._x, self._g = self.x0.clone(), torch.zeros_like(self.x0)
        for p, x, g in zip(
            trained.values(), self._split(self._x), self._split(self._g), strict=True
        ):
            p.data, p.grad = x, g

    def _split(self, vector: Tensor) -> list[Tensor]:
        parts = torch.split(vector, self.sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _fill(self, x: Tensor, buffers: dict[str, Tensor]) -> None:
        """Put parameters and buffers into the module."""
        self._x.copy_(x)
        for (owner, name), buffer in zip(self._slots, buffers.values(), strict=True):
            owner._buffers[name] = buffer

    def parameters(self, x: Tensor) -> dict[str, Tensor]:
        """The named parameter tensors that a vector stands for."""
        return dict(zip(self.names, self._split(x), strict=True))

    def pack(self, buffers: dict[str, Tensor]) -> Tensor:
        """Named buffers as a vector."""
        parts = [b.detach().reshape(-1).to(self.x0) for b in buffers.values()]
        return torch.cat(parts) if parts else self.x0.new_empty(0)

    def unpack(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector as named buffers, in memory of their own; counters are rounded."""
        parts = torch.split(vector, [b.numel() for b in self._buffers.values()])
        return {
            name: (part if old.is_floating_point() else part.round())
            .to(old.dtype, copy=True)
            .view(old.shape)
            for (name, old), part in zip(self._buffers.items(), parts, strict=True)
        }

    def module(self, x: Tensor, buffers: Tensor | None = None) -> nn.Module:
        """The model as an ordinary module that holds these parameters and buffers."""
        model = copy.deepcopy(self.model)
        state = self.parameters(x) | self.unpack(self.buffers0 if buffers is None else buffers)
        model.load_state_dict({k: v.detach().clone() for k, v in state.items()}, strict=False)
        return model

    def gradient(
        self, x: Tensor, buffers: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean loss and its gradient; buffers change in place as they do in training."""
        self._fill(x, buffers)
        self._g.zero_()
        if not self.model.training:
            self.model.train()
        loss = self.loss(self.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), self._g.clone()

    @torch.no_grad()
    def evaluate(
        self,
        x: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        targets: Tensor,
        transform: Transform | None = None,
    ) -> tuple[float, float]:
        """Mean loss and, for classification, the share of right answers (else nan)."""
        self._fill(x, self.unpack(buffers))
        self.model.eval()
        loss, right = 0.0, 0.0
        for some, wanted in zip(
            torch.split(inputs, CHUNK), torch.split(targets, CHUNK), strict=True
        ):
            outputs = self.model(transform(some, None) if transform else some)
            loss += float(self.loss(outputs, wanted)) * len(wanted)
            if self.classifies:
                right += float((outputs.argmax(1) == wanted).float().sum())
        answers = targets.numel() if self.classifies else float("nan")
        return loss / len(targets), right / answers


def _owner(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The module that holds a buffer, and the buffer's name in it."""
    parent, _, name = path.rpartition(".")
    return model.get_submodule(parent), name
