"""Parts: neutral settings, FedGLAD's similarity and guards, robust means, refusals, buffers."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.laws.play import play
from tests.laws.reference import random_problem
from undrift.checks.plan import Plan
from undrift.checks.replay import Snapshot, replay
from undrift.core import RoundFacts, Struct, UndriftError, weighted_mean
from undrift.data.federated import FederatedData
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import State, rounds
from undrift.federation.sampling import Explicit
from undrift.parts import Clip, FedGLAD
from undrift.training.task import Task
from undrift.training.work import Local

PROBLEM = random_problem(
    5, clients=5, rounds=5, unequal_steps=True, changing_population=True, with_void_round=True
)

CORES = ["FedAvg()", "FedProx(mu=0.1)", "SCAFFOLD()", "SCAFFOLDm()", "FedDyn()", "AdaBest()"]
STATISTICS = ["FedNova(momentum=0.5)", "FedGBO(Adam())", "MFL(SGDm())", "Mime(RMSProp())"]
SERVERS = ["FedAvgM()", "FedAdam(0.1)", "IDA(FedAvg())", "Krum(FedAvg(), f=1, m=2)"]


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        *(("FedGLAD({}, gamma=0.0)", inner) for inner in [*CORES, *STATISTICS, *SERVERS]),
        *(("ServerOpt({}, SGD())", inner) for inner in [*CORES, *STATISTICS, *SERVERS[2:]]),
        *(("LocalOpt({}, SGD())", inner) for inner in CORES),
        *(("Prox({}, mu=0.0)", inner) for inner in [*CORES, *STATISTICS]),
        *(("Clip({}, norm=1e300)", inner) for inner in [*CORES, *STATISTICS]),
    ],
)
def test_neutral_parts_change_no_bit(outer: str, inner: str) -> None:
    for one, two in zip(play(outer.format(inner), PROBLEM), play(inner, PROBLEM), strict=True):
        for name, value in values(two).items():
            assert np.array_equal(values(one)[name], value), name


def test_an_infinite_clip_changes_no_bit() -> None:
    clipped = play(Clip(algorithm("scaffold"), norm=math.inf), PROBLEM)
    for one, two in zip(clipped, play("scaffold", PROBLEM), strict=True):
        assert np.array_equal(one.x, two.x)


@pytest.mark.parametrize("outer", ["TrimmedMean({}, fraction=0.0)", "Krum({}, f=1, m=99)"])
@pytest.mark.parametrize(
    ("inner", "uniform"),
    [
        ("FedAvg()", "FedAvg(weights='uniform')"),
        ("FedProx(mu=0.1)", "FedProx(mu=0.1, weights='uniform')"),
        *((name, name) for name in [*CORES[2:], "MFL(Adam())", "FedGBO()"]),
    ],
)
def test_keeping_everybody_is_the_uniform_mean(outer: str, inner: str, uniform: str) -> None:
    for one, two in zip(play(outer.format(inner), PROBLEM), play(uniform, PROBLEM), strict=True):
        for name, value in values(two).items():
            assert gap(values(one)[name], value) <= 1e-12, name


def values(now: Snapshot) -> dict[str, Any]:
    """All state after a round, by name."""
    memories = {f"{i}.{k}": v for i, me in now.clients.items() for k, v in me.items()}
    return {"x": now.x, "xbar": now.xbar, **now.server, **memories}


def gap(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


# FedGLAD


def glad(
    updates: Sequence[Any],
    *,
    t: int = 2,
    B: float = 0.0,
    sizes: tuple[int, ...] | None = None,
    weights: Sequence[float] | None = None,
    **options: Any,
) -> tuple[Tensor, Struct]:
    """What FedGLAD around FedAvg makes of some updates: the direction and its own statistics.

    B is the running similarity before (0 while it is not defined), `sizes` the parameter groups.
    """
    made = FedGLAD(algorithm("fedavg"), **options)
    tensors = [torch.as_tensor(g, dtype=torch.float64) for g in updates]
    sizes = sizes or (len(tensors[0]),)
    s = made.init_server(0 * tensors[0], sizes)
    s |= Struct(fedglad=s.fedglad | Struct(B=s.fedglad.B + B))
    ups = [made.receive(s, Struct(delta=g), sizes) for g in tensors]
    mean = weighted_mean(ups, weights or [1 / len(ups)] * len(ups))
    facts = RoundFacts(t, 0.1, 0.1, 1, len(ups), population=9, n_mean=1, groups=sizes)
    d, changes = made.update(s, mean | Struct(raw=mean.delta), facts)
    return d, changes.fedglad


UPDATES = st.lists(
    st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4), min_size=1, max_size=6
).filter(lambda rows: np.linalg.norm(np.mean(rows, axis=0)) > 1e-3)


@given(rows=UPDATES, scale=st.sampled_from([1e-3, -2.0, 512.0]))
def test_similarity_of_any_updates(rows: list[list[float]], scale: float) -> None:
    """At least 1, the same at every scale, and Eq. 9 = Eq. 10."""
    g = np.array(rows)
    mean = g.mean(axis=0)
    variance = ((g - mean) ** 2).sum(axis=1).mean()
    gsi = float(glad(g)[1].gsi)
    assert gsi >= 1 - 1e-12
    assert gsi == pytest.approx(np.sqrt(1 + variance / (mean @ mean)), rel=1e-9)
    assert gsi == pytest.approx(float(glad(scale * g)[1].gsi), rel=1e-9)


@pytest.mark.parametrize("r", [1, 2, 5])
def test_similarity_of_equal_and_of_orthonormal_updates(r: int) -> None:
    assert float(glad([[1.0, 2.0, -3.0]] * r)[1].gsi) == pytest.approx(1, abs=1e-12)
    assert float(glad(np.eye(5)[:r])[1].gsi) == pytest.approx(r**0.5, abs=1e-12)


def test_similarity_is_weighted() -> None:
    _, own = glad([[3.0, 0.0], [0.0, 4.0]], weights=[0.25, 0.75])
    expected = np.sqrt((0.25 * 9 + 0.75 * 16) / (0.75**2 + 3.0**2))
    assert float(own.gsi) == pytest.approx(expected, abs=1e-12)


def test_groups_are_scaled_apart_unless_universal() -> None:
    updates = [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    d, own = glad(updates, sizes=(2, 1), B=1.0, gamma=9.0)
    assert own.gsi.tolist() == pytest.approx([2**0.5, 1.0], abs=1e-12)
    assert d.tolist() == pytest.approx([0.5**0.5, 0.5**0.5, 1.0], abs=1e-12)
    d, own = glad(updates, sizes=(2, 1), B=1.0, gamma=9.0, groups="universal")
    whole = np.sqrt(2 / 1.5)
    assert own.gsi.tolist() == pytest.approx([whole], abs=1e-12)
    assert d.tolist() == pytest.approx([0.5 * whole, 0.5 * whole, whole], abs=1e-12)


ORTHOGONAL = [[2.0, 0.0], [0.0, 2.0]]  # similarity √2
OPPOSITE = [[1.0, -3.0], [-1.0, 3.0]]
NOTHING = [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("t", [1, 2, 30])
def test_first_similarity_starts_the_running_mean(t: int) -> None:
    d, own = glad(ORTHOGONAL, t=t, gamma=0.3)
    assert float(own.B) == pytest.approx(2**0.5, abs=1e-12)
    assert own.factor.tolist() == [1.0]
    assert d.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("t", [1, 2, 3, 8])
@pytest.mark.parametrize("gamma", [0.0, 0.02, 0.3, 1.0])
def test_factor_stays_within_its_bounds(gamma: float, t: int) -> None:
    """ζ = clip(GSI/B, 1 ± γ(t-1)), and B moves afterwards."""
    room = gamma * (t - 1)
    for B in (1e-3, 1.0, 1.4, 1.5, 1e3):
        d, own = glad(ORTHOGONAL, t=t, B=B, gamma=gamma, beta=0.8)
        expected = min(max(2**0.5 / B, 1 - room), 1 + room)
        assert float(own.factor) == pytest.approx(expected, abs=1e-12)
        assert d.tolist() == pytest.approx([expected, expected], abs=1e-12)
        assert float(own.B) == pytest.approx(0.8 * B + 0.2 * 2**0.5, rel=1e-12)


def test_infinite_room_leaves_the_ratio_alone() -> None:
    d, own = glad(ORTHOGONAL, B=1e-3, gamma=math.inf)
    assert float(own.factor) == pytest.approx(2**0.5 / 1e-3, rel=1e-12)
    assert float(d[0]) == pytest.approx(2**0.5 / 1e-3, rel=1e-12)
    assert float(glad(ORTHOGONAL, t=1, B=1e-3, gamma=math.inf)[1].factor) == 1


@pytest.mark.parametrize("gamma", [0.0, 0.3, math.inf])
@pytest.mark.parametrize("B", [0.0, 1.7])
def test_updates_that_are_all_zero(B: float, gamma: float) -> None:
    d, own = glad(NOTHING, B=B, gamma=gamma)
    assert d.tolist() == [0.0, 0.0]
    assert own.factor.tolist() == [1.0]
    assert own.B.tolist() == [B]


@pytest.mark.parametrize("gamma", [0.0, 0.3, math.inf])
@pytest.mark.parametrize("B", [0.0, 1.7])
@pytest.mark.parametrize("t", [1, 4])
def test_updates_whose_mean_is_zero(t: int, B: float, gamma: float) -> None:
    d, own = glad(OPPOSITE, t=t, B=B, gamma=gamma)
    assert d.tolist() == [0.0, 0.0]
    bound = 1.0 if t == 1 else 1 + gamma * (t - 1)
    assert own.factor.tolist() == [bound]
    assert own.B.tolist() == [B]


def test_a_run_with_infinite_room_stays_finite() -> None:
    for now in play(FedGLAD(algorithm("fedadam"), gamma=math.inf), PROBLEM):
        assert np.isfinite(now.x).all()


# Robust means


def one_round(name: str, updates: Sequence[Any]) -> Snapshot:
    """A round in which the clients' updates are exactly these, and the model was 0."""
    rows = np.sqrt(len(updates[0])) * np.eye(len(updates[0]))
    clients = [(rows, -rows @ np.asarray(g)) for g in updates]
    model = nn.Linear(len(rows), 1, bias=False)
    start = np.zeros(len(rows))
    plans = [Plan(range(len(updates)))]
    (now,) = replay(
        algorithm(name), clients, plans, model=model, loss="squared_error", start=start, lr=1.0
    )
    return now


HONEST = 1 + 0.1 * np.random.default_rng(2).normal(size=(6, 3))


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("wild", [1e9, -1e9])
@pytest.mark.parametrize(
    "part",
    ["Median({})", "TrimmedMean({}, fraction=0.2)", "Krum({}, f=1, m=1)", "Krum({}, f=1, m=4)"],
)
def test_robust_parts_withstand_one_wild_client(part: str, wild: float, place: int) -> None:
    updates = np.insert(HONEST, place, wild, axis=0)
    for core in ("FedAvg()", "FedDyn()", "AdaBest()"):
        mean = one_round(part.format(core), updates).mean
        assert (HONEST.min(axis=0) - 1e-6 <= mean).all()
        assert (mean <= HONEST.max(axis=0) + 1e-6).all()
    assert abs(one_round("FedAvg()", updates).mean).max() > 1e8


@given(rows=UPDATES)
def test_robust_means_of_any_updates(rows: list[list[float]]) -> None:
    g = np.array(rows)
    r, cut = len(g), int(0.3 * len(g))
    tolerance = 1e-12 * max(1.0, np.abs(g).max())
    assert gap(one_round("Median(FedAvg())", g).mean, np.median(g, axis=0)) <= 10 * tolerance
    trimmed = np.sort(g, axis=0)[cut : r - cut].mean(axis=0)
    found = one_round("TrimmedMean(FedAvg(), fraction=0.3)", g).mean
    assert gap(found, trimmed) <= 10 * tolerance


def test_krum_keeps_the_closest() -> None:
    updates = [[0.0, 0.0], [0.1, 0.0], [0.0, 0.2], [5.0, 5.0], [9.0, 9.0]]
    assert gap(one_round("Krum(FedAvg(), f=1, m=1)", updates).mean, [0.0, 0.0]) <= 1e-12
    three = one_round("Krum(FedAvg(), f=1, m=3)", updates).mean
    assert gap(three, np.mean(updates[:3], axis=0)) <= 1e-12


WILD = st.sampled_from([0.0, 1.0, -1e-300, 1e160, -1e300, math.inf, math.nan])
HOLISTIC = [
    "IDA({})",
    "Krum({}, f=0)",
    "Krum({}, f=1, m=3)",
    "Median({})",
    "TrimmedMean({}, fraction=0.3)",
    "FedGLAD(IDA({}))",
]


def one_wild_round(name: str, updates: Sequence[Any]) -> Snapshot:
    """As `one_round`, but the loss is 0 at the start however large the updates are."""
    clients = [(np.eye(len(g)), np.asarray(g)) for g in updates]
    model = nn.Linear(len(updates[0]), 1, bias=False)
    (now,) = replay(
        algorithm(name),
        clients,
        [Plan(range(len(updates)))],
        model=model,
        loss=lambda outputs, targets: (outputs[:, 0] * targets).sum(),
        start=np.zeros(len(updates[0])),
        lr=1.0,
    )
    return now


@pytest.mark.parametrize("part", HOLISTIC)
@given(rows=st.lists(st.tuples(WILD, WILD), min_size=1, max_size=5))
@settings(max_examples=10)
def test_updates_too_large_for_numbers_break_no_part(part: str, rows: list[Any]) -> None:
    """Clients are dropped, or the model is not finite, which ends a run with a failure."""
    bad = {i for i, row in enumerate(rows) if not np.isfinite(row).all()}
    for core in ("FedAvg()", "SCAFFOLD()", "AdaBest()", "FedNova()"):
        now = one_wild_round(part.format(core), rows)
        assert bad <= set(now.dropped)
        if len(now.dropped) == len(rows):
            assert not now.x.any()


@pytest.mark.parametrize("part", ["IDA({})", "ServerOpt(IDA({}), Adam())"])
@pytest.mark.parametrize("core", ["FedAvg()", "SCAFFOLD()", "FedNova()", "MFL(SGDm())"])
def test_distances_too_large_for_numbers_end_in_a_model_that_is_not_finite(
    part: str, core: str
) -> None:
    now = one_wild_round(part.format(core), [[1e160, 1e160], [-1e160, 0.0], [2e160, 1.0]])
    assert not now.dropped
    assert np.isnan(now.x).all()


@pytest.mark.parametrize("norm", [0.1, 2.0, 100.0])
def test_clip_shortens_what_is_too_long(norm: float) -> None:
    g = np.array([3.0, -4.0])
    expected = g * min(1.0, norm / 5)
    assert gap(one_round(f"Clip(FedAvg(), norm={norm})", [g]).mean, expected) <= 1e-12
    x = PROBLEM.start
    limit = PROBLEM.lr * norm * 5  # at most five steps a round
    for now in play(f"Clip(SCAFFOLD(), norm={norm})", PROBLEM):
        assert np.linalg.norm(now.x - x) <= limit + 1e-12
        x = now.x


# Refusals


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("FedGLAD(FedGLAD(FedAvg()))", "FedGLAD can be used only once"),
        ("ServerOpt(ServerOpt(FedAvg()))", "ServerOpt can be used only once"),
        ("Clip(Prox(Clip(FedAvg())))", "Clip can be used only once"),
        ("ServerOpt(FedGLAD(FedAvg()))", "FedGLAD must stand outside"),
        ("Prox(IDA(FedAvg()))", "IDA must stand outside"),
        ("Krum(Prox(ServerOpt(FedAvg())))", "ServerOpt must stand outside"),
        ("IDA(Krum(FedAvg()))", "only one part may weigh the updates"),
        ("Median(LocalOpt(TrimmedMean(FedAvg())))", "TrimmedMean must stand outside"),
        ("FedGLAD(Median(FedAvg()))", "weighted means only"),
        ("FedGLAD(ServerOpt(TrimmedMean(FedAvg())))", "weighted means only"),
        *(
            (f"LocalOpt({core})", f"{core.split('(')[0]} has a way of its own")
            for core in ("FedGBO()", "MFL()", "MimeLite()", "Mime()", "FedNova(0.9)")
        ),
        ("LocalOpt(Clip(FedGBO()))", "FedGBO has a way"),
        ("FedNova(0.9, 0.1)", "use one of momentum and mu"),
        ("SCAFFOLD(option=3)", "option must be one of 2, 1"),
        ("FedGBO(Adam(bias_correction=True))", "no bias correction"),
        ("FedAdam(eps=0.0)", "v0 must be > 0"),
    ],
)
def test_refused_compositions(name: str, reason: str) -> None:
    with pytest.raises(UndriftError, match=reason) as caught:
        algorithm(name)
    assert "(" in str(caught.value).split(":")[0]  # the error begins with what was asked for


# Buffers


def batch_norm() -> tuple[Task, FederatedData]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    rng = np.random.default_rng(0)
    clients = [(rng.normal(i, 1 + i, (n, 3)), rng.integers(0, 2, n)) for i, n in enumerate((4, 9))]
    return Task(model, dtype=torch.float64), FederatedData.of_clients(clients)


def next_round(name: str, cohort: tuple[int, ...], state: State | None, steps: int = 3) -> State:
    task, data = batch_norm()
    (now,) = rounds(
        algorithm(name),
        task,
        data,
        total=state.t + 1 if state else 1,
        sampler=Explicit((cohort,)),
        local=Local(lr=0.2, steps=steps, batching="full"),
        state=copy.deepcopy(state),
    )
    return now.state


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("FedAvg()", (4 / 13, 9 / 13)),
        ("ServerOpt(FedAvg(), SGD(lr=0.3))", (4 / 13, 9 / 13)),
        ("FedAdam(0.5)", (4 / 13, 9 / 13)),
        ("FedGLAD(FedAvg(), gamma=5.0)", (4 / 13, 9 / 13)),
        ("FedGLAD(FedAvgM(), gamma=5.0)", (4 / 13, 9 / 13)),
        ("SCAFFOLD()", (0.5, 0.5)),
        ("AdaBest(mu=0.5, beta=0.9)", (0.5, 0.5)),
        ("IDA(FedAvg())", (0.5, 0.5)),
        ("Median(FedAvg(weights='uniform'))", (0.5, 0.5)),
    ],
)
def test_buffers_are_averaged_and_nothing_else(name: str, shares: tuple[float, float]) -> None:
    state = next_round(name, (0, 1), next_round(name, (0, 1), None))
    alone = [next_round(name, (i,), state).buffers for i in (0, 1)]
    both = next_round(name, (0, 1), state)
    assert gap(both.buffers, shares[0] * alone[0] + shares[1] * alone[1]) <= 1e-12
    assert gap(alone[0], alone[1]) > 1e-3


def test_clients_start_from_the_servers_buffers() -> None:
    """A single step moves them exactly as one forward pass of the module does."""
    task, data = batch_norm()
    state = next_round("fedavg", (0, 1), None)
    module = task.module(state.server.x, state.buffers).train()
    module(data.client(1)[0])
    expected = task.pack(dict(module.named_buffers()))
    found = next_round("fedavg", (1,), state, steps=1).buffers
    assert gap(found, expected) <= 1e-12
    assert gap(found, state.buffers) > 1e-3


@pytest.mark.parametrize("name", ["scaffold(option=1)", "mimelite", "mime"])
def test_only_local_steps_move_the_buffers(name: str) -> None:
    """Not the further gradients that some algorithms ask for."""
    plain = next_round("fedavg(weights='uniform')", (0, 1), None, steps=1)
    assert gap(next_round(name, (0, 1), None, steps=1).buffers, plain.buffers) <= 1e-12


class Counting(nn.Module):
    """A model that replaces its buffer instead of changing it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + len(x)
        return self.linear(x)


def test_a_buffer_may_be_replaced() -> None:
    _, data = batch_norm()
    torch.manual_seed(0)
    task = Task(Counting(), dtype=torch.float64)
    local = Local(steps=3, batching="full")
    sampler = Explicit(((0, 1),))
    for now in rounds(algorithm("fedavg"), task, data, total=2, sampler=sampler, local=local):
        mean = (4 * 4 + 9 * 9) / 13  # each client sees its own samples in every step
        assert float(now.buffers) == pytest.approx(now.t * 3 * mean, abs=1e-12)
