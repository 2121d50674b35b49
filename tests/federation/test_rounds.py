"""The rounds of a federation: what is kept, what is reported, what is repeatable."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.federation.small import (
    SIZES,
    SMALL,
    clients,
    gap,
    run,
    same_bits,
)
from undrift.config import UndriftError
from undrift.data.federated import FederatedData
from undrift.engines import Compiled, Sequential
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import MD, AdaFL, Explicit, Sampler, Uniform
from undrift.training.losses import squared_error
from undrift.training.task import Task
from undrift.training.trainer import ClientError
from undrift.training.work import Local

# What does not fit


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, nn.L1Loss()])
def test_a_loss_that_would_compare_each_output_with_all_targets(loss: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UndriftError, match=r"shapes \(2, 1\) and \(2,\); make these agree"):
            run("fedavg", loss=loss)
        run("fedavg", loss=lambda outputs, targets: loss(outputs.squeeze(1), targets))


def test_a_model_that_cannot_read_the_data(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UndriftError, match=r"^Task\(Linear, .* cannot train on FederatedData\(5 "):
        run("fedavg", model=nn.Linear(4, 1))
    with pytest.raises(UndriftError, match=r"cannot train on .*inputs float64 of shape \(3,\)"):
        run("fedavg", model=nn.Linear(4, 1), engine=Compiled(1))
    assert not caplog.records


# A user's own mistakes


class Fragile(nn.Module):
    """A linear model that breaks at the sight of one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        if (x == 77).any():
            raise RuntimeError("cannot read this sample")
        return self.linear(x)


ALL, ONE = Local(batch_size=9, steps=1), Local(batch_size=1, steps=1)


@pytest.mark.parametrize(
    ("name", "local", "stage"),
    [
        ("fedavg", ALL, "local step 1"),
        ("scaffold", SMALL, r"local step [123]"),
        ("scaffold(option=1)", ONE, "upload"),
        ("mimelite", ONE, "upload"),
        ("mime", ONE, "survey"),
    ],
)
def test_an_error_names_round_client_and_stage(name: str, local: Local, stage: str) -> None:
    assert 8 not in ONE.plan(0, 1, 3, SIZES[3])[0]  # only full gradients will meet sample 8
    pairs = clients()
    pairs[3][0][8] = 77
    with pytest.raises(ClientError, match=f"round 1, client 3, {stage}: cannot read") as caught:
        run(name, pairs=pairs, model=Fragile(), local=local)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_leaves_the_state_as_it_was() -> None:
    """So a run can go on from the round that failed."""
    broken = False

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if broken and len(targets) == SIZES[3]:
            raise RuntimeError("out of memory")
        return squared_error(outputs, targets)

    state = run("adabest", loss=loss, total=2)[-1].state
    kept, broken = copy.deepcopy(state), True
    with pytest.raises(ClientError, match="round 3, client 3, local step 1: out of memory"):
        run("adabest", loss=loss, total=4, state=state)
    same_bits(state, kept)
    broken = False
    whole = run("adabest", loss=loss, total=4)[-1].state
    same_bits(run("adabest", loss=loss, total=4, state=state)[-1].state, whole)


# Repeatable


def watch(name: str, **options: Any) -> tuple[list[tuple[int, ...]], list[list[float]]]:
    """The cohorts of a run, and the targets in each of its mini-batches."""
    seen: list[list[float]] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(targets.tolist())
        return squared_error(outputs, targets)

    options |= {"sampler": Uniform(2), "local": SMALL, "engine": Sequential()}
    history = run(name, loss=loss, **options)
    return [now.cohort for now in history], seen


def test_all_algorithms_see_the_same_cohorts_and_batches() -> None:
    expected = watch("fedavg", seed=5)
    for name in ("scaffold", "adabest", "fedglad+fedadam", "ida+feddyn", "fedgbo", "mfl"):
        assert watch(name, seed=5) == expected
    assert watch("fedavg", seed=6)[0] != expected[0]
    assert watch("fedavg", seed=6)[1] != expected[1]


@pytest.mark.parametrize("sampler", [Uniform(3), AdaFL(2), MD(3)], ids=repr)
@pytest.mark.parametrize("name", ["adabest", "fedglad+fedadam", "scaffold", "fedgbo"])
def test_a_run_goes_on_from_its_state(name: str, sampler: Sampler) -> None:
    options = {"sampler": sampler, "local": SMALL, "dropout": 0.2, "seed": 3}
    whole = run(name, total=6, **options)[-1].state
    half = run(name, total=3, **options)[-1].state
    assert half.t == 3
    rest = run(name, total=6, state=half, **options)
    assert [now.t for now in rest] == [4, 5, 6]
    same_bits(rest[-1].state, whole)
    assert run(name, total=6, state=half, **options) == []


def test_what_a_round_reports_does_not_change_later() -> None:
    history = run("adabest", total=4)
    for t in (1, 2, 3):
        now = run("adabest", total=t)[-1]
        same = history[t - 1]
        assert torch.equal(same.server.x, now.server.x)
        assert torch.equal(same.server.h, now.server.h)
        assert (same.t, same.cohort, same.weights) == (now.t, now.cohort, now.weights)


def test_randomness_in_a_model_is_keyed() -> None:
    """Whatever torch's generator holds and whoever else takes part, and it is left alone."""

    def last(seed: int, sampler: Sampler) -> Round:
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        task = Task(model, "squared_error", dtype=torch.float64)
        task.x0 = torch.linspace(-1, 1, len(task.x0), dtype=torch.float64)
        torch.manual_seed(seed)
        data = FederatedData.of_clients(clients())
        history = rounds(
            algorithm("fedavg"),
            task,
            data,
            total=2,
            sampler=sampler,
            local=SMALL,
            keep_models=True,
        )
        *_, now = history
        expected = torch.rand(3, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(torch.rand(3), expected)
        return now

    both = Explicit(((1, 2), (0,)))
    one, two = last(1, both), last(2, both)
    assert torch.equal(one.server.x, two.server.x)
    alone = last(3, Explicit(((1,), (0,))))
    assert torch.equal(alone.state.models[1].y, one.state.models[1].y)  # type: ignore[index]


# What is reported


def by_hand(pairs: Sequence[Any], x: np.ndarray, steps: int, lr: float) -> Any:
    """Updates and mean losses of least-squares clients on their local paths."""
    updates, losses = [], []
    for inputs, targets in pairs:
        y, path = x, []
        for _ in range(steps):
            residual = inputs @ y - targets
            path.append(0.5 * np.mean(residual**2))
            y = y - lr * inputs.T @ residual / len(targets)
        updates.append(x - y)
        losses.append(np.mean(path))
    return np.array(updates), np.array(losses)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_a_round_is_what_it_is_by_hand(weights: str) -> None:
    pairs = clients()
    shares = np.array(SIZES if weights == "samples" else [1] * 5, dtype=float)
    shares /= shares.sum()
    x = None
    for now in run(f"fedavg(weights='{weights}')", pairs=pairs):
        if x is not None:
            updates, losses = by_hand(pairs, x, steps=2, lr=0.1)
            mean = shares @ updates
            squares = (updates**2).sum(axis=1)
            square = shares @ squares
            assert gap(now.server.x, x - mean) <= 1e-12
            assert now.mean is not None
            assert gap(now.mean.delta, mean) <= 1e-12
            assert gap([now.weights[i] for i in range(5)], shares) <= 1e-12
            assert now.train_loss == pytest.approx(shares @ losses, abs=1e-12)
            spread = shares @ ((updates - mean) ** 2).sum(axis=1)
            assert now.drift == pytest.approx(np.sqrt(spread), abs=1e-9)
            assert now.gsi == pytest.approx(np.sqrt(square / (mean @ mean)), abs=1e-9)
            assert now.square == pytest.approx(square, abs=1e-12)
            deviation = np.sqrt(shares @ (squares - square) ** 2)
            assert now.square_spread == pytest.approx(deviation / square, abs=1e-9)
            assert now.steps == 5 * 2
            assert now.samples == 2 * sum(SIZES)
        x = now.server.x.numpy()


def test_updates_may_be_of_any_length() -> None:
    for lr in (1e-100, 1e100):
        (now,) = run("fedavg", total=1, local=Local(lr=lr, steps=1, batching="full"))
        assert math.isnan(now.square_spread) == (now.square == 0) == (lr < 1)
    pairs = clients()
    pairs[3][1][:] = 1e100  # Krum leaves it out
    (now,) = run("Krum(FedAvg(), f=1, m=3)", pairs=pairs, total=1)
    assert now.weights[3] == 0
    assert now.square_spread < 10


@pytest.mark.parametrize(
    "name", ["scaffold(option=1)", "mimelite(SGDm(beta=0.0))", "mime(SGDm(beta=0.0))"]
)
def test_train_loss_is_that_of_the_local_path_alone(name: str) -> None:
    """Gradients taken elsewhere do not count; a client alone walks the path of FedAvg."""
    plain, other = (run(text, pairs=clients((4,)), total=1)[0] for text in ("fedavg", name))
    assert gap(other.server.x, plain.server.x) <= 1e-12
    assert other.train_loss == pytest.approx(plain.train_loss, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "down", "up"),
    [
        ("fedavg", 1, 1),
        ("fedprox", 1, 1),
        ("fedglad+fedadam", 1, 1),
        ("feddyn", 1, 1),
        ("adabest(scale='none')", 1, 1),
        ("scaffold", 2, 2),
        ("scaffoldm", 2, 1),
        ("fedgbo(SGDm())", 2, 1),
        ("fedgbo(RMSProp())", 2, 1),
        ("fedgbo(Adam())", 3, 1),
        ("mfl(SGDm())", 2, 2),
        ("mfl(Adam())", 3, 3),
        ("mimelite(SGDm())", 2, 2),
        ("mimelite(Adam())", 3, 2),
        ("mime(SGDm())", 3, 2),
        ("mime(Adam())", 4, 2),
    ],
)
def test_messages_are_multiples_of_the_model(name: str, down: int, up: int) -> None:
    n = 3 * 8  # three parameters in float64
    for now in run(name, sampler=Uniform(2), total=2):
        assert now.bytes_down == 2 * down * n
        assert now.bytes_up == 2 * up * n


def test_single_numbers_and_buffers_travel_too() -> None:
    n = 3 * 8
    (now,) = run("adabest", total=1)
    assert (now.bytes_down, now.bytes_up) == (5 * (n + 8), 5 * n)
    (now,) = run("fednova", total=1)
    assert (now.bytes_down, now.bytes_up) == (5 * n, 5 * (n + 8))
    model = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 1, bias=False))
    (now,) = run("fedavg", total=1, model=model)
    assert (now.bytes_down, now.bytes_up) == (5 * (n + 7 * 8), 5 * (n + 7 * 8))


def test_who_drops_out_has_received_but_not_sent() -> None:
    n = 3 * 8
    for now in run("fedavg", total=9, dropout=0.4):
        assert now.bytes_down == 5 * n
        assert now.bytes_up == len(now.delivered) * n


# Weights


def updates(before: Round, now: Round) -> dict[int, Tensor]:
    """The updates of a round in a run that keeps the models."""
    assert now.state.models is not None
    return {i: before.server.x - now.state.models[i].y for i in now.delivered}


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("name", ["fedavg", "fedavg(weights='uniform')", "scaffold"])
def test_the_weights_of_a_sampler_replace_those_of_the_algorithm(name: str, dropout: float) -> None:
    """MD sampling: each client counts as often as it was drawn, among those that deliver."""
    state = run(name, sampler=MD(6), total=1, keep_models=True)[-1]
    for _ in range(6):
        before = copy.deepcopy(state)
        (state,) = run(name, sampler=MD(6), total=before.t + 1, state=state.state, dropout=dropout)
        if not state.delivered:
            continue
        assert sum(state.weights.values()) == pytest.approx(1, abs=1e-12)
        found = updates(before, state)
        expected = sum(state.weights[i] * found[i] for i in state.delivered)
        assert gap(before.server.x - state.server.x, expected) <= 1e-12
        if not dropout:
            assert all((6 * w) == pytest.approx(round(6 * w)) for w in state.weights.values())


def test_attention_moves_towards_clients_that_end_far_away() -> None:
    """AdaFL's rule on the distances of the delivered models from their mean."""
    sampler = AdaFL(3, alpha=0.5)
    first = run("fedavg", sampler=sampler, total=1, keep_models=True)[-1]
    before = copy.deepcopy(first)
    (now,) = run("fedavg", sampler=sampler, total=2, state=first.state)
    found = updates(before, now)
    mean = sum(now.weights[i] * found[i] for i in now.delivered)
    d = {i: float((found[i] - mean).norm()) for i in now.delivered}
    old, new = before.state.attention, now.state.attention
    assert old is not None
    assert new is not None
    mass = sum(old[i] for i in d)
    for i in range(5):
        share = 0.5 * old[i] + 0.5 * mass * d[i] / sum(d.values()) if i in d else old[i]
        assert new[i] == pytest.approx(share, abs=1e-12)
    assert new.sum() == pytest.approx(1, abs=1e-12)


# The step size


def test_the_step_size_decays_round_by_round() -> None:
    """Also through rounds in which nobody delivers."""
    pairs = clients((6,))
    inputs, targets = pairs[0]
    local = Local(lr=0.2, lr_decay=0.5, weight_decay=0.3, steps=1, batching="full")
    x = None
    for now in run("fedavg", pairs=pairs, total=6, local=local, sampler=Explicit(((0,), (0,), ()))):
        if x is not None:
            gradient = inputs.T @ (inputs @ x - targets) / 6 + 0.3 * x
            step = 0.2 * 0.5 ** (now.t - 1) if now.delivered else 0.0
            assert gap(now.server.x, x - step * gradient) <= 1e-12
        x = now.server.x.numpy()
