"""A task: an `nn.Module` and a loss, as functions of one flat parameter vector."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from undrift.config import UndriftError, unknown
from undrift.data.federated import Transform
from undrift.data.html import facts_table
from undrift.training.losses import LOSSES, PADDING, PREDICTS, Loss, Predicts
from undrift.training.sums import Rates, Sums

CHUNK = 256
"""Samples per forward pass in evaluation; more is slower and takes more memory."""


class Task:
    """A model and a loss.

    x0        initial trainable parameters as one vector
    x, g      current parameters and gradients as vectors; the module's tensors are views of them,
              so that a step copies nothing
    predicts  what the outputs stand for, which accuracy depends on; that of the loss if not given
    buffers0  initial buffers (running statistics) as one vector, which the server averages;
              buffers with persistent=False are constants and stay in the module
    groups    sizes of FedGLAD's parameter groups, in order; one group per tensor if not given

    Not thread-safe: give each thread its own `replica`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss = "cross_entropy",
        *,
        predicts: Predicts | None = None,
        groups: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UndriftError(f"{model!r} is not a model; give a torch.nn.Module")
        if isinstance(loss, str) and loss not in LOSSES:
            raise UndriftError(unknown("loss", loss, LOSSES))
        self.loss: Loss = LOSSES[loss] if isinstance(loss, str) else loss
        predicts = predicts or PREDICTS.get(str(loss), "values")
        self.classifies = predicts == "classes"
        self.predicts = predicts != "values"
        try:
            model = copy.deepcopy(model).to(device=device, dtype=dtype)
        except (AssertionError, RuntimeError) as error:  # torch says the first of a missing CUDA
            if device == "cpu":
                raise
            why = str(error).partition("\n")[0]
            raise UndriftError(
                f"device={str(device)!r} cannot be used here: {why}; leave it out for the CPU"
            ) from None
        self._buffers = _buffers(model)
        trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise UndriftError("the model has no trainable parameters")
        lazy = [k for k, p in trained.items() if isinstance(p, nn.UninitializedParameter)]
        if lazy:
            raise UndriftError(
                f"parameter {lazy[0]!r} has no shape yet; run the model on one batch first"
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
        self._bind(model)

    def __repr__(self) -> str:
        return f"Task({', '.join(map(str, self._facts().values()))})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        facts = self._facts()
        if len(self.buffers0):
            facts["buffers"] = f"{len(self.buffers0):,}, averaged by the server"
        return facts_table("Task", facts)

    def _facts(self) -> dict[str, str]:
        loss = getattr(self.loss, "__name__", type(self.loss).__name__)
        size = f"{len(self.x0)} parameters {str(self.x0.dtype).removeprefix('torch.')}"
        return {
            "model": type(self.model).__name__,
            "loss": loss,
            "size": size,
            "device": str(self.x0.device),
        }

    def _bind(self, model: nn.Module) -> None:
        """Use this module, with its parameters and gradients as views of x and g."""
        self.model = model
        self._slots = [_owner(model, name) for name in self._buffers]
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.x, self.g = self.x0.clone(), torch.zeros_like(self.x0)
        for p, x in zip(self.trained, self.split(self.x), strict=True):
            p.data = x
        self.gather_gradients()

    def replica(self) -> Task:
        """The same task with a module of its own, for another thread."""
        twin = copy.copy(self)
        twin._bind(copy.deepcopy(self.model))
        return twin

    def split(self, vector: Tensor) -> list[Tensor]:
        """Views of a vector in the shapes of the parameters."""
        parts = torch.split(vector, self.sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def gather_gradients(self) -> None:
        """Make every parameter's gradient a view of the vector g."""
        for p, g in zip(self.trained, self.split(self.g), strict=True):
            p.grad = g

    def put(self, buffers: dict[str, Tensor]) -> None:
        """Put buffers into the module."""
        for (owner, name), buffer in zip(self._slots, buffers.values(), strict=True):
            owner._buffers[name] = buffer

    def taken(self, buffers: dict[str, Tensor]) -> dict[str, Tensor]:
        """The module's current buffers, by the names in `buffers`."""
        held = (cast(Tensor, owner._buffers[name]) for owner, name in self._slots)
        return dict(zip(buffers, held, strict=True))

    def parameters(self, x: Tensor) -> dict[str, Tensor]:
        """A parameter vector as named tensors."""
        return dict(zip(self.names, self.split(x), strict=True))

    def pack(self, buffers: dict[str, Tensor]) -> Tensor:
        """Named buffers as a vector."""
        parts = [b.detach().reshape(-1).to(self.x0) for b in buffers.values()]
        return torch.cat(parts) if parts else self.x0.new_empty(0)

    def unpack(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector as named buffers, copied; integer buffers are rounded."""
        if not self._buffers:
            return {}
        parts = torch.split(vector, [b.numel() for b in self._buffers.values()])
        return {
            name: (part if old.is_floating_point() else part.round())
            .to(old.dtype, copy=True)
            .view(old.shape)
            for (name, old), part in zip(self._buffers.items(), parts, strict=True)
        }

    def module(self, x: Tensor, buffers: Tensor | None = None) -> nn.Module:
        """A plain `nn.Module` with these parameters and buffers."""
        model = copy.deepcopy(self.model)
        state = self.parameters(x) | self.unpack(self.buffers0 if buffers is None else buffers)
        model.load_state_dict({k: v.detach().clone() for k, v in state.items()}, strict=False)
        return model

    def gradient(
        self, x: Tensor, buffers: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean loss and its gradient, in training mode: `buffers` are updated."""
        self.x.copy_(x)
        self.put(buffers)
        self.g.zero_()
        if not self.model.training:
            self.model.train()
        loss = self.loss(self.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        buffers |= self.taken(buffers)
        return loss.detach(), self.g.clone()

    def evaluate(
        self,
        x: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        targets: Tensor,
        transform: Transform | None = None,
    ) -> tuple[float, float]:
        """Mean loss, and accuracy in [0, 1] for classes and tokens (else nan)."""
        rates = self.rates(self.score(x, buffers, inputs, targets, transform))
        return rates.loss, rates.accuracy

    @torch.no_grad()
    def score(
        self,
        x: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        targets: Tensor,
        transform: Transform | None = None,
    ) -> Sums:
        """Loss and predictions, summed, for `rates`."""
        loss, sums = 0.0, Sums()
        for outputs, wanted in self._outputs(x, buffers, inputs, targets, transform):
            if answers := self.answers(wanted):
                loss += float(self.loss(outputs, wanted)) * answers
            if self.classifies:
                sums.right.update(wanted[_correct(outputs, wanted)].tolist())
                sums.total.update(wanted[wanted != PADDING].tolist())
            else:
                sums.right[Sums.ALL] += int(_correct(outputs, wanted).sum()) if self.predicts else 0
                sums.total[Sums.ALL] += answers
        return replace(sums, loss=loss)

    @torch.no_grad()
    def hits(
        self,
        x: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        targets: Tensor,
        transform: Transform | None = None,
    ) -> Tensor:
        """Correct and all predictions per sample, shape (2, samples), for classes and tokens."""
        parts = [
            torch.stack([_correct(outputs, wanted), wanted != PADDING]).view(2, len(wanted), -1)
            for outputs, wanted in self._outputs(x, buffers, inputs, targets, transform)
        ]
        return torch.cat(parts, 1).sum(2)

    def _outputs(
        self,
        x: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        targets: Tensor,
        transform: Transform | None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and targets in evaluation mode, CHUNK samples at a time."""
        self.x.copy_(x)
        self.put(self.unpack(buffers))
        self.model.eval()
        for some, wanted in zip(
            torch.split(inputs, CHUNK), torch.split(targets, CHUNK), strict=True
        ):
            yield self.model(transform(some, None) if transform else some), wanted

    def rates(self, sums: Sums) -> Rates:
        """Mean loss and accuracies, from the sums of `score`."""
        return Rates(
            sums.mean_loss,
            sums.accuracy if self.predicts else math.nan,
            sums.balanced_accuracy if self.classifies else math.nan,
        )

    def answers(self, targets: Tensor) -> int:
        """The number of terms in the mean loss: samples, or tokens that are not PADDING."""
        return int((targets != PADDING).sum()) if self.predicts else len(targets)


def _correct(outputs: Tensor, wanted: Tensor) -> Tensor:
    """Which predictions are right: the class or token with the largest score; of a single score, a
    logit, whether it is > 0."""
    if outputs.numel() == len(outputs):
        return (outputs.reshape(wanted.shape) > 0) == wanted
    return outputs.argmax(1) == wanted


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that training may change, in the model's order."""
    names: dict[Tensor, str] = {}
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(path, recurse=False):
            if name.rpartition(".")[2] in module._non_persistent_buffers_set:
                continue
            if buffer in names:
                raise UndriftError(
                    f"buffers {names[buffer]!r} and {name!r} share one tensor, so clients cannot "
                    "have their own; keep it in one module, or register it with persistent=False"
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
