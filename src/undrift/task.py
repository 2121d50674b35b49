"""A task: an `nn.Module` and a loss, seen as functions of one flat vector."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from undrift.config import UndriftError, unknown
from undrift.data.federated import Transform

Loss = Callable[[Any, Tensor], Tensor]
"""Outputs and targets to the mean loss over the batch."""

CHUNK = 256
"""Samples in one forward pass when many are evaluated at once; more is slower and takes memory."""

PADDING = -100
"""A target that is none: it counts neither in the loss nor in the accuracy."""


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of half the squared error."""
    return 0.5 * ((outputs.reshape(targets.shape) - targets) ** 2).mean()


def next_token(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy over all tokens but PADDING: scores (N, C, T), targets (N, T)."""
    scores, tokens = outputs.transpose(1, 2).flatten(0, 1), targets.flatten().long()
    total = nn.functional.cross_entropy(scores, tokens, ignore_index=PADDING, reduction="sum")
    return total / (tokens != PADDING).sum().clamp(min=1)


LOSSES: dict[str, Loss] = {
    "cross_entropy": nn.functional.cross_entropy,
    "next_token": next_token,
    "squared_error": squared_error,
}


def suitable_loss(targets: Tensor) -> str:
    """The loss for targets that are real numbers, a row of tokens or a class for each sample."""
    if targets.is_floating_point():
        return "squared_error"
    return "next_token" if targets.ndim > 1 else "cross_entropy"


class Task:
    """What clients learn.

    x0       the model's trainable parameters as one vector
    buffers0 its buffers (running statistics) as one vector, which is only ever averaged; buffers
             with persistent=False are constants and stay where they are
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
        self.predicts = self.classifies or loss == "next_token"
        self.model = copy.deepcopy(model).to(device=device, dtype=dtype)
        self._buffers = _buffers(self.model)
        trained = {k: p for k, p in self.model.named_parameters() if p.requires_grad}
        if not trained:
            raise UndriftError("the model has no trainable parameters")
        lazy = [k for k, p in trained.items() if isinstance(p, nn.UninitializedParameter)]
        if lazy:
            raise UndriftError(
                f"parameter {lazy[0]!r} has no shape yet; run the model once on a batch before"
            )
        self.names = tuple(trained)
        self.shapes = [p.shape for p in trained.values()]
        self.sizes = [p.numel() for p in trained.values()]
        self.x0 = torch.cat([p.detach().reshape(-1) for p in trained.values()])
        self.groups = tuple(self.sizes if groups is None else groups)
        if not all(isinstance(size, int) and size > 0 for size in self.groups):
            raise UndriftError(f"groups={self.groups}: give whole numbers >= 1")
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
        """Mean loss and its gradient; `buffers` change as they do in training."""
        self._fill(x, buffers)
        self._g.zero_()
        if not self.model.training:
            self.model.train()
        loss = self.loss(self.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        for key, (owner, name) in zip(buffers, self._slots, strict=True):
            buffers[key] = cast(Tensor, owner._buffers[name])
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
        """Mean loss and, for classes and tokens, the share of right answers (else nan)."""
        self._fill(x, self.unpack(buffers))
        self.model.eval()
        loss, right, total = 0.0, 0, 0
        for some, wanted in zip(
            torch.split(inputs, CHUNK), torch.split(targets, CHUNK), strict=True
        ):
            outputs = self.model(transform(some, None) if transform else some)
            if answers := self.answers(wanted):
                loss += float(self.loss(outputs, wanted)) * answers
                total += answers
            if self.predicts:
                right += int((outputs.argmax(1) == wanted).sum())
        if not total:
            return math.nan, math.nan
        return loss / total, right / total if self.predicts else math.nan

    def answers(self, targets: Tensor) -> int:
        """What the mean loss of these targets is over: samples, or tokens in sequences."""
        return int((targets != PADDING).sum()) if self.predicts else len(targets)


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that training may change, in the model's order."""
    names: dict[Tensor, str] = {}
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(path, recurse=False):
            if name.rpartition(".")[2] in module._non_persistent_buffers_set:
                continue
            if buffer in names:
                raise UndriftError(
                    f"buffers {names[buffer]!r} and {name!r} are one tensor, of which clients "
                    "could not have their own; keep it in one module, or set persistent=False"
                )
            if not bool(torch.isfinite(buffer).all()):
                raise UndriftError(
                    f"buffer {name!r} is not finite, so it cannot be averaged; if it is a "
                    "constant such as a mask, register it with persistent=False"
                )
            names[buffer] = name
    return {name: buffer for buffer, name in names.items()}


def _owner(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The module that holds a buffer, and the buffer's name in it."""
    parent, _, name = path.rpartition(".")
    return model.get_submodule(parent), name
