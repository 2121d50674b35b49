"""Who takes part in a round: samplers' demands, dropouts, divergence, clients that come and go."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.federation.small import (
    EVERYBODY,
    FULL,
    SIZES,
    clients,
    gap,
    run,
    same_bits,
    vectors,
)
from undrift.config import UndriftError
from undrift.core import Algorithm, RoundFacts, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Sequential
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import rounds
from undrift.federation.sampling import MD, Explicit, Sampler, Uniform
from undrift.training.losses import squared_error
from undrift.training.task import Task

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
