"""Recurrent layers on our operators give what torch's give."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from undrift.config import UndriftError
from undrift.engines.native import library
from undrift.engines.native.recurrent import FastRecurrent

try:
    library.load()
except UndriftError as error:
    pytest.skip(str(error), allow_module_level=True)

KINDS = ["GRU", "LSTM"]
OURS = {"GRU": {"gru_forward", "gru_backward"}, "LSTM": {"lstm_forward", "lstm_backward"}}


class Seen(TorchDispatchMode):
    """Remembers which of our operators ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if op.namespace == "undrift":
            self.names.add(op._schema.name.removeprefix("undrift::"))
        return op(*args, **(kwargs or {}))


def flat(result: Any) -> list[Tensor]:
    return (
        [result]
        if isinstance(result, Tensor)
        else [t for part in result if part is not None for t in flat(part)]
    )


def results(
    network: nn.Module, x: Tensor, states: list[Tensor], last: bool = True, seed: int = 0
) -> tuple[set[str], list[Tensor]]:
    """Our operators that ran, outputs, and gradients of everything for random weights of these."""
    torch.manual_seed(seed)
    given = [x, *states] if x.requires_grad else states
    args = () if not states else (states[0] if len(states) == 1 else tuple(states),)
    with Seen() as seen:
        outputs = flat(network(x, *args))
        outputs = outputs if last else outputs[:1]
        weights = [torch.rand(o.shape, generator=torch.Generator(), dtype=o.dtype) for o in outputs]
        total = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
        gradients = torch.autograd.grad(total, [*given, *network.parameters()])
    return seen.names, [*outputs, *gradients]


def compare(kind: str, network: nn.Module, x: Tensor, states: list[Tensor], **how: Any) -> None:
    none, theirs = results(network, x, states, **how)
    with FastRecurrent():
        names, ours = results(network, x, states, **how)
    assert (none, names) == (set(), OURS[kind])
    bound = 1e-12 if x.dtype == torch.float64 else 2e-5
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        torch.testing.assert_close(a, b, rtol=bound, atol=bound * max(1, b.abs().max().item()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(1, 9),
    batch=st.sampled_from([1, 2, 5, 40, 150]),
    inputs=st.integers(1, 9),
    size=st.sampled_from([1, 3, 16, 37]),
    layers=st.integers(1, 3),
    both=st.booleans(),
    bias=st.booleans(),
    batch_first=st.booleans(),
    start=st.booleans(),
    needs_dx=st.booleans(),
    last=st.booleans(),
)
def test_outputs_and_gradients_are_those_of_torch(
    kind: str,
    dtype: torch.dtype,
    steps: int,
    batch: int,
    inputs: int,
    size: int,
    layers: int,
    both: bool,
    bias: bool,
    batch_first: bool,
    start: bool,
    needs_dx: bool,
    last: bool,
) -> None:
    torch.manual_seed(steps + batch)
    network = getattr(nn, kind)(
        inputs, size, layers, bias=bias, batch_first=batch_first, bidirectional=both, dtype=dtype
    )
    shape = (batch, steps, inputs) if batch_first else (steps, batch, inputs)
    x = torch.randn(shape, dtype=dtype, requires_grad=needs_dx)
    shape = (layers * (1 + both), batch, size)
    states = [
        torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(1 + (kind[0] == "L"))
    ]
    compare(kind, network, x, states if start else [], last=last)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_draws_the_same_numbers(kind: str) -> None:
    network = getattr(nn, kind)(3, 4, 3, dropout=0.5, batch_first=True, dtype=torch.float64)
    compare(kind, network, torch.randn(6, 5, 3, dtype=torch.float64, requires_grad=True), [])
    compare(kind, network.eval(), torch.randn(6, 5, 3, dtype=torch.float64), [])


def test_the_last_cell_alone_has_a_gradient() -> None:
    network = nn.LSTM(2, 3, dtype=torch.float64)
    x = torch.randn(4, 2, 2, dtype=torch.float64)
    theirs = torch.autograd.grad(network(x)[1][1].sum(), list(network.parameters()))
    with FastRecurrent():
        ours = torch.autograd.grad(network(x)[1][1].sum(), list(network.parameters()))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gates_are_exact_from_tiny_to_infinite(dtype: torch.dtype) -> None:
    """An LSTM cell with one input, open gates and no state shows its sigmoid and tanh."""
    end = torch.logspace(-30, 30, 2001, dtype=dtype)
    middle = torch.linspace(-100, 100, 9999, dtype=dtype)
    special = torch.tensor([0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    x = torch.cat([end, -end, middle, special])
    zero, one = torch.zeros(len(x), 1, dtype=dtype), torch.ones(4, 1, dtype=dtype)
    *_, saved = torch.ops.undrift.lstm_forward(
        x[None, :, None], zero, zero, one, 0 * one, None, None, False
    )
    for column, function in ((0, torch.sigmoid), (2, torch.tanh)):
        exact = function(x.double())
        bound = torch.finfo(dtype).eps * (2 * exact.abs() + 1e-20)
        error = (saved[0, :, column].double() - exact).abs()
        assert bool(((error <= bound) | x.isnan()).all())
        assert torch.equal(error.isnan(), x.isnan())


@pytest.mark.parametrize("kind", KINDS)
def test_operators_can_write_into_given_memory(kind: str) -> None:
    states = 1 if kind == "GRU" else 2
    rows = 3 * (2 + states)
    x, w_ih, w_hh = torch.randn(5, 4, 2), torch.randn(rows, 2), torch.randn(rows, 3)
    first = [torch.randn(4, 3) for _ in range(states)]
    forward = getattr(torch.ops.undrift, f"{kind.lower()}_forward")
    backward = getattr(torch.ops.undrift, f"{kind.lower()}_backward")
    args = (x, *first, w_ih, w_hh, None, None, True)
    made = forward(*args)
    dys = torch.randn(5, 4, 3).transpose(0, 1).contiguous().transpose(0, 1)
    back = (dys, *([None] * (states - 1)), x, *first, w_ih, w_hh, made[0], made[-1], True, True)
    for op, inputs in ((forward, args), (backward, back)):
        expected = op(*inputs)
        names = [a.name for a in op.out._schema.arguments if a.is_out]
        outs = {n: torch.full_like(e, torch.nan) for n, e in zip(names, expected, strict=True)}
        op.out(*inputs, **outs)
        assert all(map(torch.equal, outs.values(), expected))
        torch.library.opcheck(op.default, inputs, test_utils="test_schema")


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_others_go_to_torch() -> None:
    x, lengths = torch.randn(4, 3, 2), torch.tensor([4, 3, 1])
    packed, half = pack_padded_sequence(x, lengths), x.bfloat16()
    cases: list[tuple[nn.Module, Any]] = [
        (nn.LSTM(2, 5, proj_size=3), x),
        (nn.GRU(2, 3), packed),
        (nn.LSTM(2, 3), packed),
        (nn.GRU(2, 3, dtype=torch.bfloat16), half),
        (nn.RNN(2, 3), x),
    ]
    for network, sequence in cases:
        expected = flat(network(sequence))
        with FastRecurrent(), Seen() as seen:
            got = flat(network(sequence))
        assert not seen.names
        assert all(map(torch.equal, got, expected))


def test_mistakes_are_refused() -> None:
    with FastRecurrent(), pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal"):
        nn.GRU(2, 3)(torch.randn(4, 3, 5))
    x, h, w = torch.randn(4, 3, 2), torch.zeros(3, 3), torch.randn(9, 3)
    with pytest.raises(RuntimeError, match="weights do not fit"):
        torch.ops.undrift.gru_forward(x, h, w, w, None, None, False)
    network = nn.GRU(2, 3)
    with FastRecurrent(), pytest.raises(UndriftError, match="second derivatives"):
        torch.autograd.grad(network(x)[0].sum(), network.weight_hh_l0, create_graph=True)


def test_gradients_by_torch_func() -> None:
    network, x = nn.GRU(2, 3), torch.randn(4, 3, 2)

    def total(parameters: dict[str, Tensor]) -> Tensor:
        outputs: Tensor = torch.func.functional_call(network, parameters, (x,))[0]
        return outputs.square().sum()

    parameters = {name: p.detach() for name, p in network.named_parameters()}
    expected = torch.func.grad(total)(parameters)
    with FastRecurrent():
        torch.testing.assert_close(torch.func.grad(total)(parameters), expected, rtol=0, atol=0)


def test_threads_do_not_disturb_each_other() -> None:
    network, x = nn.GRU(8, 64, 2), torch.randn(40, 32, 8)
    found: list[tuple[Tensor, ...]] = []

    def work() -> None:
        with FastRecurrent():
            loss = network(x)[0].square().sum()
            found.append(torch.autograd.grad(loss, list(network.parameters())))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(map(torch.equal, found[0] * 3, sum(found[1:], ())))
