"""GRU and LSTM layers for CPUs, with one operator per layer and direction (recurrent.cpp)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from undrift.config import UndriftError
from undrift.engines.native.library import load

ops = torch.ops.undrift


class FastRecurrent(TorchFunctionMode):
    """While active, `nn.GRU` and `nn.LSTM` use our operators, with the same results up to rounding.

    Not supported, and left to torch: packed sequences, projections, other devices or dtypes than
    float32 and float64 on a CPU, tensor subclasses, autocast, `torch.func`. Second derivatives
    raise an error. Raises `UndriftError` if the operators cannot be compiled.
    """

    def __init__(self) -> None:
        super().__init__()
        load()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if function in (torch.gru, torch.lstm) and not kwargs and _serves(*args):
            return _run(*args)
        return function(*args, **(kwargs or {}))


def _serves(*args: Any) -> bool:
    """Whether our operators support these arguments of `torch.gru` or `torch.lstm`."""
    if len(args) != 9 or not isinstance(args[3], bool):  # packed sequences have no bool there
        return False
    x, states, weights, biased, layers, _, _, both, _ = args
    tensors = [x, *_tuple(states), *weights]
    return (
        x.dim() == 3
        and x.dtype in (torch.float32, torch.float64)
        and all(type(t) in (Tensor, nn.Parameter) and t.numel() for t in tensors)
        and all(t.device.type == "cpu" and t.dtype == x.dtype for t in tensors)
        and len(weights) == layers * (1 + both) * (4 if biased else 2)  # else it has projections
        and not torch.is_autocast_enabled("cpu")
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _run(
    x: Tensor,
    states: Tensor | Sequence[Tensor],
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Run all layers and directions; returns outputs and last states, as torch does."""
    states, each = _tuple(states), 4 if biased else 2
    x = x.transpose(0, 1) if batch_first else x
    last: list[tuple[Tensor, ...]] = []
    for layer in range(layers):
        outputs = []
        for reverse in (False, True)[: 1 + both]:
            i = len(last)
            parameters = [*weights[i * each : (i + 1) * each], None, None][:4]
            ys, *cells, _ = _apply(reverse, x, *(state[i] for state in states), *parameters)
            outputs.append(ys)
            last.append((ys[0 if reverse else -1], *cells))
        x = torch.cat(outputs, -1) if both else outputs[0]
        if dropout and train and layer < layers - 1:
            x = functional.dropout(x, dropout)
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(state) for state in zip(*last, strict=True))


def _tuple(states: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (states,) if isinstance(states, Tensor) else tuple(states)


class _Layer(torch.autograd.Function):
    """One direction of one layer.

    Takes direction, input, initial states (h, or h and c), weights and biases. Returns the outputs
    of all steps, for LSTM the last cell, and values saved for backward.
    """

    @staticmethod
    def forward(ctx: Any, reverse: bool, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        operator = ops.gru_forward if len(tensors) == 6 else ops.lstm_forward
        results: tuple[Tensor, ...] = operator(*tensors, reverse)
        ctx.reverse = reverse
        ctx.save_for_backward(*tensors[:-2], results[0], results[-1])
        ctx.mark_non_differentiable(results[-1])
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, dys: Tensor | None, *rest: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise UndriftError("FastRecurrent has no second derivatives; use the layer without it")
        dcell, saved, wanted = rest[:-1], ctx.saved_tensors, ctx.needs_input_grad[1:]
        if dys is None:
            dys = torch.zeros_like(saved[-2])
        operator = ops.lstm_backward if dcell else ops.gru_backward
        gradients = operator(dys, *dcell, *saved, ctx.reverse, wanted[0])
        return None, *(g if w else None for g, w in zip(gradients, wanted, strict=True))


_apply: Callable[..., tuple[Tensor, ...]] = _Layer.apply
