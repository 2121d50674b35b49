"""The rounds of a federation: who delivers, what is kept, what is reported, what is repeatable."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from undrift.config import UndriftError
from undrift.core import Algorithm, RoundFacts, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Compiled, Sequential
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import Round, State, rounds
from undrift.federation.sampling import MD, AdaFL, Bernoulli, Explicit, Sampler, Uniform
from undrift.training.losses import squared_error
from undrift.training.task import Task
from undrift.training.trainer import ClientError
from undrift.training.work import Local

SIZES = (4, 7, 5, 9, 6)
EVERYBODY = Bernoulli(1.0)
FULL = Local(lr=0.1, steps=2, batching="full")
SMALL = Local(lr=0.1, batch_size=3, epochs=1)


def clients(sizes: Sequence[int] = SIZES, dim: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.normal(i / 3, 1.0, (n, dim)), rng.normal(i, 1.0, n)) for i, n in enumerate(sizes)]


def run(
    name: str,
    *,
    pairs: Sequence[Any] | None = None,
    model: nn.Module | None = None,
    loss: Any = "squared_error",
    total: int = 4,
    sampler: Sampler = EVERYBODY,
    local: Local = FULL,
    **options: Any,
) -> list[Round]:
    torch.manual_seed(0)
    task = Task(model or nn.Linear(3, 1, bias=False), loss, dtype=torch.float64)
    data = FederatedData.of_clients(pairs or clients())
    made = algorithm(name)
    return list(rounds(made, task, data, total=total, sampler=sampler, local=local, **options))


def vectors(state: State) -> dict[str, Any]:
    memories = {f"{i}.{k}": v for i, me in state.clients.items() for k, v in me.leaves()}
    return {**dict(state.server.leaves()), **memories, "attention": state.attention, "t": state.t}


def same_bits(a: State, b: State) -> None:
    one, two = vectors(a), vectors(b)
    assert set(one) == set(two)
    for name, value in one.items():
        assert np.array_equal(value, two[name]) or value is two[name], name


def gap(a: Any, b: Any) -> float:
    return 0.0 if a is b is None else float(np.abs(np.asarray(a) - np.asarray(b)).max())


# Who takes part


@pytest.mark.parametrize("sampler", [Uniform(4), MD(4), Explicit(((0, 1, 2, 3), (1, 2)))], ids=repr)
@pytest.mark.parametrize("name", ["Krum(fedavg)", "FedGLAD(ServerOpt(Krum(adabest)))"])
def test_krum_needs_more_clients_than_it_is_drawn(name: str, sampler: Sampler) -> None:
    with pytest.raises(UndriftError, match=r"Krum.* needs 5 clients in a round, and .* draws 4"):
        run(name, sampler=sampler)
    assert run("Krum(fedavg, f=0)", sampler=sampler, total=1)


@pytest.mark.parametrize("sampler", [EVERYBODY, Uniform(5)], ids=repr)
def test_krum_goes_on_where_clients_drop_out(sampler: Sampler) -> None:
    played = run("Krum(fedavg)", sampler=sampler, dropout=0.5)
    assert any(0 < len(round.delivered) < 5 for round in played)


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


# Clients that do not deliver


def test_dropouts_are_reported_and_lose_nothing() -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(3, 1), "squared_error", dtype=torch.float64)
    data = FederatedData.of_clients(clients())
    before: dict[int, Struct] = {}
    lost = 0
    for now in rounds(
        algorithm("adabest"), task, data, total=60, sampler=Uniform(3), local=FULL, dropout=0.3
    ):
        assert set(now.dropped) | set(now.delivered) == set(now.cohort)
        assert len(now.dropped) + len(now.delivered) == 3
        assert set(now.dropped.values()) <= {"dropped out"}
        assert set(now.weights) == set(now.delivered)
        for i, memory in before.items():
            assert torch.equal(now.clients[i].h, memory.h) == (i not in now.delivered)
        before = dict(now.clients)
        lost += len(now.dropped)
    assert lost == pytest.approx(0.3 * 180, abs=20)


def test_dropouts_do_not_change_the_cohorts() -> None:
    plain, lossy = (
        [now.cohort for now in run("fedavg", total=9, sampler=Uniform(3), dropout=rate)]
        for rate in (0.0, 0.5)
    )
    assert plain == lossy


@pytest.mark.parametrize("name", ["adabest", "fedglad+fedadam", "scaffold", "mime", "ida+fedavg"])
def test_a_round_without_anybody_changes_nothing(name: str) -> None:
    first = run(name, total=1)[-1].state
    kept = copy.deepcopy(first)
    for now in run(name, total=3, dropout=1 - 1e-9, state=first):
        assert now.delivered == ()
        assert len(now.dropped) == 5
        assert now.mean is None
        assert now.weights == {}
        assert all(math.isnan(value) for value in (now.train_loss, now.drift, now.gsi))
        assert now.bytes_up == now.steps == now.samples == 0
        assert now.bytes_down > 0
    assert first.t == 3
    kept.t = 3
    same_bits(first, kept)


def test_nobody_registered_is_a_void_round() -> None:
    present = {1: [0, 1], 2: [], 3: [0, 1]}
    history = run(
        "adabest", total=3, sampler=Explicit(((0, 1), ())), population=present.__getitem__
    )
    assert [now.delivered for now in history] == [(0, 1), (), (0, 1)]
    assert torch.equal(history[0].server.x, history[1].server.x)


@pytest.mark.parametrize("population", [[0, 1, 99], [-1, 0, 1]])
def test_the_population_must_exist(population: list[int]) -> None:
    with pytest.raises(UndriftError):
        run("fedavg", total=1, sampler=Uniform(2), population=lambda t: population)


@pytest.mark.parametrize("rate", [-0.5, 1.0, 1.5, math.nan])
def test_dropout_is_a_probability(rate: float) -> None:
    with pytest.raises(UndriftError, match="must be at least 0 and less than 1"):
        run("fedavg", dropout=rate)


@pytest.mark.parametrize("total", [2.5, 0, -1, True])
def test_rounds_are_counted_in_whole_numbers(total: Any) -> None:
    with pytest.raises(UndriftError, match=f"total={total}: must be a whole number >= 1"):
        run("fedavg", total=total)


def test_a_client_without_samples_is_reported() -> None:
    history = run("fedavg", pairs=clients((4, 0, 5)), total=1)
    assert history[0].dropped == {1: "no samples"}
    assert history[0].delivered == (0, 2)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "adabest", "mime", "Median(FedAvg())"])
def test_a_diverged_client_is_named_and_counts_for_nothing(name: str) -> None:
    pairs = clients()
    sick = [(x * np.nan if i == 2 else x, y) for i, (x, y) in enumerate(pairs)]
    without = Explicit(((0, 1, 3, 4),))
    ill, well = run(name, pairs=sick), run(name, pairs=pairs, sampler=without)
    for now in ill:
        assert list(now.dropped) == [2]
        assert "diverged" in now.dropped[2]
        assert "not finite" in now.dropped[2]
        assert now.delivered == (0, 1, 3, 4)
    one, two = vectors(ill[-1].state), vectors(well[-1].state)
    assert set(one) == set(two)
    assert max(gap(value, two[name]) for name, value in one.items()) <= 1e-12


def test_a_client_that_diverges_later_keeps_its_memory() -> None:
    poisoned = False

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        bad = poisoned and len(targets) == SIZES[1]
        return squared_error(outputs, targets) * (math.inf if bad else 1.0)

    torch.manual_seed(0)
    task = Task(nn.Linear(3, 1), loss, dtype=torch.float64)
    data = FederatedData.of_clients(clients())
    memory = None
    for now in rounds(
        algorithm("scaffold"),
        task,
        data,
        total=4,
        sampler=EVERYBODY,
        local=FULL,
        engine=Sequential(),
    ):
        poisoned = now.t == 2
        if now.t == 2:
            memory = now.clients[1]
        if now.t == 3:
            assert list(now.dropped) == [1]
            assert torch.equal(now.clients[1].c, memory.c)  # type: ignore[union-attr]
        if now.t == 4:
            assert not now.dropped
            assert now.clients[1] is not memory


def test_only_available_clients_are_drawn_but_all_registered_count() -> None:
    seen: set[int] = set()

    @dataclass(frozen=True)
    class Counting(Algorithm):
        def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Tensor, Struct]:
            assert round.population == 4
            return super().update(s, mean, round)

    torch.manual_seed(0)
    task = Task(nn.Linear(3, 1), "squared_error", dtype=torch.float64)
    data = FederatedData.of_clients(clients())
    for now in rounds(
        Counting(),
        task,
        data,
        total=20,
        sampler=Uniform(2),
        local=FULL,
        population=lambda t: range(4),
        available=lambda t: [1, 3, 4],
    ):
        seen |= {*now.cohort}
    assert seen == {1, 3}


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
            square = shares @ (updates**2).sum(axis=1)
            assert gap(now.server.x, x - mean) <= 1e-12
            assert now.mean is not None
            assert gap(now.mean.delta, mean) <= 1e-12
            assert gap([now.weights[i] for i in range(5)], shares) <= 1e-12
            assert now.train_loss == pytest.approx(shares @ losses, abs=1e-12)
            spread = shares @ ((updates - mean) ** 2).sum(axis=1)
            assert now.drift == pytest.approx(np.sqrt(spread), abs=1e-9)
            assert now.gsi == pytest.approx(np.sqrt(square / (mean @ mean)), abs=1e-9)
            assert now.steps == 5 * 2
            assert now.samples == 2 * sum(SIZES)
        x = now.server.x.numpy()


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


# Clients that join, leave and return


PRESENT = {1: [0, 1, 2], 2: [0, 1, 2], 3: [0, 1], 4: [0, 1], 5: [0, 1, 2, 3], 6: [0, 2, 3]}


def test_adabest_knows_how_long_a_client_was_away() -> None:
    """h_i ← h_i/(t - t'_i) + g_i with the true gap; what is away keeps its memory."""
    torch.manual_seed(0)
    task = Task(nn.Linear(3, 1), "squared_error", dtype=torch.float64)
    data = FederatedData.of_clients(clients())
    x, old = task.x0, {}
    for now in rounds(
        algorithm("adabest(mu=0.1)"),
        task,
        data,
        total=6,
        sampler=EVERYBODY,
        local=FULL,
        population=PRESENT.__getitem__,
        keep_models=True,
    ):
        assert now.delivered == tuple(PRESENT[now.t])
        for i, memory in old.items():
            if i not in now.delivered:
                assert torch.equal(now.clients[i].h, memory.h)
        for i in now.delivered:
            g = x - now.state.models[i].y  # type: ignore[index]
            h, last = (old[i].h, old[i].t) if i in old else (0 * g, 0)
            assert gap(now.clients[i].h, h / (now.t - last) + g) <= 1e-12
            assert now.clients[i].t == now.t
        x, old = now.server.x, dict(now.clients)
    assert (old[1].t, old[2].t, old[3].t) == (5, 6, 6)
    assert 4 not in old


def test_the_population_of_a_round_is_the_registered_one() -> None:
    """FedDyn: h ← h + (p/N) ḡ with the N of this round."""
    cohorts = Explicit(((0, 1), (2,), (0,), (1,), (1, 3), (0, 2)))
    h = torch.zeros(3, dtype=torch.float64)
    for now in run("feddyn", total=6, sampler=cohorts, population=PRESENT.__getitem__):
        assert now.mean is not None
        h = h + len(now.delivered) / len(PRESENT[now.t]) * now.mean.delta
        assert gap(now.server.h, h) <= 1e-12


def test_absent_clients_cannot_be_drawn() -> None:
    for now in run("fedavg", total=6, sampler=Uniform(2), population=PRESENT.__getitem__):
        assert set(now.cohort) <= set(PRESENT[now.t])
    with pytest.raises(UndriftError, match=r"round 3: clients \[2\]"):
        run("fedavg", sampler=Explicit(((0, 2),)), population=PRESENT.__getitem__)
    with pytest.raises(UndriftError, match="cannot draw 3 of 2 clients"):
        run("fedavg", sampler=Uniform(3), population=PRESENT.__getitem__)


@pytest.mark.parametrize(
    "wrong",
    [{"sampler": "Uniform(5)"}, {"local": {"lr": 0.1}}, {"engine": "compiled"}, {"seed": -1}],
)
def test_wrong_objects_are_told(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UndriftError, match=f"^{name}="):
        run("fedavg", **wrong)


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
