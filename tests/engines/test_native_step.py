"""Local steps as kernels: what is the same in all of them is summed once, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from undrift.algorithms import SCAFFOLD, AdaBest, FedAvg, FedDyn, SCAFFOLDm
from undrift.core import Algorithm, Client, Grad, Struct, Vector
from undrift.data.federated import FederatedData
from undrift.engines.native.library import load
from undrift.engines.native.step import compile_step
from undrift.engines.native.trainer import CompiledTrainer
from undrift.training.task import Task
from undrift.training.trainer import Trainer, Work, client_rounds
from undrift.training.work import Local

LOCAL = Local(lr=0.05, weight_decay=0.01, batch_size=4, epochs=2, batching="keep")
"""with a smaller batch at the end of each epoch, so that a client's steps have several parts"""


def federation() -> tuple[Task, FederatedData]:
    torch.manual_seed(0)
    clients = [(torch.randn(11, 6, dtype=torch.float64), torch.randint(4, (11,)))]
    return Task(nn.Linear(6, 4).double()), FederatedData.of_clients(clients)


def vectors_read(algorithm: Algorithm) -> int:
    """How many vectors each step but the first reads, model and gradient included."""
    load()
    x = torch.zeros(3)
    client = Client(1, 11, 6, 0.05, 0.05, 11.0, lambda x: x, lambda x: x)
    down, me = algorithm.download(algorithm.init_server(x, (3,))), algorithm.init_client(x)
    kernel = compile_step(
        algorithm, algorithm.begin(down, me, client), down, me, client, 0.01
    ).kernel
    steps = [one for one in kernel.instructions[kernel.prologue :] if one.op != "GRADIENT"]
    return len({operand for one in steps for operand in (one.a, one.b) if operand >= 0})


@pytest.mark.parametrize("algorithm", [SCAFFOLD(), SCAFFOLDm(), FedDyn(), AdaBest(prox=1.0)])
def test_all_that_stays_the_same_is_one_vector(algorithm: Algorithm) -> None:
    assert vectors_read(algorithm) == vectors_read(AdaBest()) == vectors_read(FedAvg()) + 1


NUMBERS = st.sampled_from([-1.5, -1, 0.25, 1, 3])
COMBINATIONS = st.recursive(
    st.sampled_from(["g", "y", "x", "a", "b", "m"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-"), inner, inner),
        st.tuples(st.sampled_from("*/"), inner, NUMBERS),
        st.tuples(st.just("-"), inner),
        st.tuples(st.just("*"), inner, st.sampled_from("am")),  # by a norm: of what stays or not
        st.tuples(st.just("/"), inner, st.just("a")),  # by a vector that stays
        st.tuples(st.just("needed twice"), inner),
    ),
    max_leaves=12,
)


def value(tree: Any, leaves: dict[str, Any]) -> Any:
    match tree:
        case str():
            return leaves[tree]
        case "-", one:
            return -value(one, leaves)
        case "needed twice", one:
            twice = value(one, leaves)
            return abs(twice) + twice
        case "*", one, str(name):
            return value(one, leaves) * leaves[name].norm()
        case "/", one, str(name):
            return value(one, leaves) / (leaves[name].sqrt() + 1)
        case "+", one, two:
            return value(one, leaves) + value(two, leaves)
        case "-", one, two:
            return value(one, leaves) - value(two, leaves)
        case "*", one, number:
            return value(one, leaves) * number
        case _, one, number:
            return value(one, leaves) / number


@settings(max_examples=50)
@given(tree=COMBINATIONS)
def test_combinations_are_as_written(tree: Any) -> None:
    """Of gradient g, model y, momentum m, and x, a and b, which stay."""

    class Combination(Algorithm):
        def init_client(self, x: Vector) -> Struct:
            return Struct(a=x * x, b=0.3 - x)

        def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
            return Struct(y=down.x, m=down.x / 2)

        def direction(
            self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
        ) -> Any:
            g = grad(local.y)
            leaves = {"g": g, "y": local.y, "m": local.m, "x": down.x, "a": me.a, "b": me.b}
            return g - me.b + value(tree, leaves)

        def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
            m = local.m / 2 + d / 4
            return local | Struct(y=local.y - 0.01 * client.lr * m, m=m)

        def upload(
            self, local: Struct, down: Struct, me: Struct, client: Client
        ) -> tuple[Struct, Struct]:
            return Struct(delta=down.x - local.y, m=local.m), me

    task, data = federation()
    algorithm = Combination()
    work = Work(t=1, client=0, seed=0, data=data, local=LOCAL, n_mean=11.0)
    clients, down = [(work, algorithm.init_client(task.x0))], Struct(x=task.x0)
    recorded = CompiledTrainer(task.replica())
    (plain,), (planned,) = (
        client_rounds(algorithm, trainer, clients, down, task.buffers0)
        for trainer in (Trainer(task.replica()), recorded)
    )
    assert recorded.reasons == {}
    for name, wanted in plain.up.leaves():
        torch.testing.assert_close(getattr(planned.up, name), wanted, rtol=1e-11, atol=1e-12)
