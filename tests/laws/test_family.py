"""The later algorithms: each agrees with its own reference and keeps the laws of its paper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws import family as family  # registers the references
from tests.laws.pairs import FULL, TOLERANCE, UNEQUAL, gap, over_seeds, problem_of
from tests.laws.play import play
from tests.laws.reference import random_problem
from tests.laws.test_parts import UPDATES, one_round
from tests.laws.test_reference import PROBLEMS, Row, agree
from undrift.algorithms import FedAU
from undrift.core import Client, Struct, UndriftError
from undrift.data.federated import FederatedData
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import rounds
from undrift.federation.sampling import Uniform
from undrift.training.task import Task

TABLE: list[Row] = [
    ("fedcm(alpha=0.3)", "fedcm", {"alpha": 0.3}),
    ("FedCM(weights='samples')", "fedcm", {"weights": "samples"}),
    ("SCAFFOLD-M(alpha=0.3)", "scaffold_momentum", {"alpha": 0.3}),
    ("FedACG(beta=0.7, mu=0.1)", "fedacg", {"lam": 0.7, "mu": 0.1}),
    ("FedSAM(rho=0.1)", "sam", {}),
    ("SAM(FedAvg(), rho=0.1, normalise=False, share=0.7)", "sam_mixed", {}),
    ("FedASAM(rho=0.1)", "asam", {}),
    ("FedGamma(rho=0.1)", "fedgamma", {}),
    ("MoFedSAM(alpha=0.3, rho=0.1)", "mofedsam", {"alpha": 0.3}),
    ("FedSpeed(mu=0.1, rho=0.1, form='paper')", "fedspeed", {"lam": 10.0}),
    ("FedSpeed(mu=0.2)", "sharp_feddyn", {"mu": 0.2, "scale": "none"}),
    ("FedDC(mu=0.1)", "feddc", {"mu": 0.1}),
    ("FedDC(mu=0.1, duals='active')", "feddc", {"mu": 0.1, "active": True}),
    ("FedVARP()", "fedvarp", {}),
    ("MIFA()", "fedvarp", {"mifa": True}),
    ("FedAU(cut=2)", "fedau", {"cut": 2}),
    ("FedAU()", "fedau", {}),
    ("Scaffnew()", "scaffnew", {}),
    ("FedExP(FedAvg(), eps=0.01)", "fedexp", {"eps": 0.01}),
    ("FedExP(FedAvg(weights='uniform'), eps=0.0)", "fedexp", {"eps": 0.0, "weights": "uniform"}),
    ("FedExP(FedAvg(), eps=0.01, form='code')", "fedexp", {"eps": 0.01, "form": "code"}),
    ("FedHyper(FedAvg())", "fedhyper", {}),
    ("FedHyper(FedAvg(), bound=1.5, normalise=True)", "fedhyper", {"bound": 1.5, "cosine": True}),
    ("FedInit(FedAvg(), beta=0.3, form='paper')", "fedinit", {"beta": 0.3}),
    ("FedInit(FedAvg(), beta=0.3)", "fedinit", {"beta": 0.3, "form": "code"}),
    ("DeltaSGD(FedAvg())", "delta_sgd", {}),
    ("DeltaSGD(FedAvg(), start=5.0, growth=1.0, c=2.0)", "delta_sgd",
     {"start": 5.0, "growth": 1.0, "c": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_agrees(row: Row, kind: str) -> None:
    agree(row, random_problem(seed=1, rounds=6, **PROBLEMS[kind]))


@settings(max_examples=30)
@given(
    row=st.sampled_from(TABLE),
    kind=st.sampled_from(list(PROBLEMS)),
    seed=st.integers(0, 10**6),
)
def test_agrees_on_any_seed(row: Row, kind: str, seed: int) -> None:
    agree(row, random_problem(seed, rounds=4, **PROBLEMS[kind]))


# What is remembered


@over_seeds
def test_means_of_memories(seed: int) -> None:
    """ū is the mean of all u_i; h and c of FedDC are those of all a_i and c_i."""
    problem = problem_of(seed, **UNEQUAL, with_void_round=True)
    for name, pairs in (
        ("fedvarp", {"u": "u"}),
        ("mifa", {"u": "u"}),
        ("FedGLAD(FedVARP(), gamma=9.0)", {"u": "u"}),
        ("feddc(mu=0.1)", {"h": "a", "c": "c"}),
        ("SCAFFOLD-M", {"c": "c"}),
    ):
        for now in play(name, problem):
            for kept, each in pairs.items():
                memories = sum(memory[each] for memory in now.clients.values())
                assert gap(now.server[kept], memories / 5) <= TOLERANCE


@over_seeds
def test_corrections_of_scaffnew_add_up_to_nothing(seed: int) -> None:
    """If everybody takes part with the same K; the last rounds' part comes with the next x."""
    run = play("scaffnew", problem_of(seed, **FULL))
    for now in run:
        total = sum(m["h"] + (now.x - m["y"]) / m["work"] for m in now.clients.values())
        assert gap(total, 0) <= 1e-10
    partial = play("scaffnew", problem_of(seed, rounds=8))[-1].clients
    assert gap(sum(m["h"] for m in partial.values()), 0) > 1e-6


def test_the_weight_of_fedau_is_the_mean_gap_before_this_round() -> None:
    """For a client that comes with probability q it tends to 1/q, and long gaps are cut."""
    rng = np.random.default_rng(0)
    for q, cut in ((0.2, 10**6), (0.5, 10**6), (0.05, 4)):
        made, me, x = FedAU(cut), Struct(count=0, t=0), torch.zeros(1)
        past: list[int] = []
        away = 0
        for t in range(1, 4001):
            away += 1
            came = rng.random() < q
            if came:
                client = Client(t, 1, 1, 0.1, 0.1, 1.0, lambda y: y, lambda y: y)
                up, me = made.upload(Struct(y=x), Struct(x=x), me, client)
                assert up.weight == pytest.approx(np.mean(past or [1]))
            if came or away == cut:
                past.append(away)
                away = 0
        if cut > 100:
            assert up.weight == pytest.approx(1 / q, rel=0.1)
        assert up.weight <= cut


# FedExP, FedHyper


@given(rows=UPDATES, scale=st.sampled_from([1e-3, 512.0]))
def test_extrapolation_of_any_updates(rows: list[list[float]], scale: float) -> None:
    """At least 1, half the squared similarity, and the same at every scale if eps is 0."""
    g = np.array(rows)
    now = one_round("FedExP(FedAvg(weights='uniform'), eps=0.0)", g)
    similarity = (g**2).sum(axis=1).mean() / (g.mean(axis=0) ** 2).sum()
    assert now.server["fedexp.factor"] == pytest.approx(max(1, similarity / 2), rel=1e-9)
    again = one_round("FedExP(FedAvg(weights='uniform'), eps=0.0)", scale * g)
    assert again.server["fedexp.factor"] == pytest.approx(now.server["fedexp.factor"], rel=1e-9)
    with_eps = one_round("FedExP(FedAvg(weights='uniform'), eps=1.0)", g).server["fedexp.factor"]
    assert 1 <= with_eps <= now.server["fedexp.factor"] + 1e-12


def test_fedhyper_stays_within_its_bounds_and_void_rounds_change_nothing() -> None:
    problem = problem_of(0, rounds=30, with_void_round=True)
    rates = [now.server["fedhyper.rate"] for now in play("FedHyper(bound=1.2)", problem)]
    assert rates[0] == 1
    assert all(1 / 1.2 <= rate <= 1.2 for rate in rates)
    assert len(set(rates)) > 2
    assert rates[15] == rates[14]


# FedInit


@over_seeds
def test_the_forms_of_fedinit_differ_by_the_mean_start(seed: int) -> None:
    """In one round from the same state: x_code − x_paper = −β Σ w_i (x − y_i')."""
    problem = problem_of(seed, **FULL, rounds=2)
    paper, code = (play(f"FedInit(beta=0.3, form='{form}')", problem) for form in ("paper", "code"))
    assert gap(paper[0].x, code[0].x) <= TOLERANCE  # nobody has been away yet
    shares = np.array([len(y) for y in problem.ys]) / sum(len(y) for y in problem.ys)
    ahead = sum(
        share * (code[0].x - memory["fedinit.y"])
        for share, memory in zip(shares, code[0].clients.values(), strict=True)
    )
    assert gap(code[1].x - paper[1].x, -0.3 * ahead) <= TOLERANCE


# Refusals


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("FedExP(FedGLAD(FedAvg()))", "only one part may rescale"),
        ("FedGLAD(FedHyper(FedAvg()))", "only one part may rescale"),
        ("FedExP(FedDyn())", "goes on by itself"),
        ("FedExP(Extrapolate(FedAvg()))", "goes on by itself"),
        ("FedExP(FedAdam())", "a step size of its own"),
        ("FedExP(Median(FedAvg()))", "weighted means only"),
        ("SAM(Prox(ASAM(FedAvg())))", "one of SAM and ASAM"),
        ("Momentum(FedGBO())", "FedGBO has a way of its own"),
        ("FedInit(SCAFFOLD(), form='paper')", "use form='code'"),
        ("FedInit(Momentum(FedAvg()), form='paper')", "use form='code'"),
        *(
            (f"DeltaSGD({inner})", "divides updates by Kη")
            for inner in ("SCAFFOLD()", "SCAFFOLDm()", "FedGBO()", "FedDC()", "fedcm", "FedNova()")
        ),
        ("DeltaSGD(LocalOpt(FedAvg()))", "LocalOpt has a way of its own"),
        ("DeltaSGD(Mime())", "Mime has a way of its own"),
        ("Prox(DeltaSGD(FedAvg()))", "DeltaSGD must stand outside"),
        ("FedGLAD(Scaffnew())", "take the next x for the mean"),
        ("ServerOpt(Clip(Scaffnew()), SGD(lr=0.5))", "take the next x for the mean"),
        ("FedSpeed(form='text')", "form must be one of"),
    ],
)
def test_refused_compositions(name: str, reason: str) -> None:
    with pytest.raises(UndriftError, match=reason):
        algorithm(name)


def test_scaffnew_refuses_samplers_that_never_draw_everybody() -> None:
    data = FederatedData.of_clients([(np.ones((2, 1)), np.ones(2))] * 3)
    task = Task(torch.nn.Linear(1, 1).double(), "squared_error")
    made: Any = algorithm("scaffnew")
    with pytest.raises(UndriftError, match="needs all 3 clients in a round"):
        next(rounds(made, task, data, total=1, sampler=Uniform(2)))
    last = next(rounds(made, task, data, total=1, sampler=Uniform(3)))
    assert math.isfinite(last.train_loss)
