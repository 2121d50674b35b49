"""Every algorithm and option agrees with the independent NumPy reference, state by state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws import reference
from tests.laws.play import play
from tests.laws.reference import Problem, random_problem
from undrift.engines import Compiled, Engine, Sequential

TOLERANCE = 1e-12

PROBLEMS: dict[str, dict[str, Any]] = {
    "mini-batches": {},
    "changing population, a void round": {
        "changing_population": True,
        "with_void_round": True,
        "minibatch": False,
    },
    "unequal steps": {"unequal_steps": True},
    "least squares, everybody": {"loss": "least_squares", "full_participation": True},
    "one client a round": {"clients": 2, "minibatch": False, "unequal_steps": True},
}

Row = tuple[str, str, dict[str, Any]]
"""Our text, the reference's name, the reference's options."""

SERVER: list[Row] = [
    ("fedavg", "fedavg", {}),
    ("fedavg(weights='uniform')", "fedavg", {"weights": "uniform"}),
    ("ServerOpt(FedAvg(), SGD(lr=0.5))", "fedavg", {"server_lr": 0.5}),
    ("fedprox(mu=0.3)", "fedprox", {"mu": 0.3}),
    ("Prox(FedAvg(), mu=0.3)", "fedprox", {"mu": 0.3}),
    ("FedAvgM(0.8, 0.7)", "fedavgm", {"beta": 0.8, "server_lr": 0.7}),
    ("FedAvgM(0.8, 0.7, form='ema')", "fedavgm", {"beta": 0.8, "server_lr": 0.7, "form": "ema"}),
    ("FedAdam(0.1)", "fedopt", {"rule": "adam", "server_lr": 0.1}),
    ("FedYogi(0.1)", "fedopt", {"rule": "yogi", "server_lr": 0.1}),
    ("FedAdagrad(0.1)", "fedopt", {"rule": "adagrad", "server_lr": 0.1}),
    ("FedRMSProp(0.1, beta=0.99)", "fedopt", {"rule": "rmsprop", "server_lr": 0.1}),
    (
        "FedAdam(0.1, beta1=0.7, beta2=0.8, eps=0.1, v0=1.0)",
        "fedopt",
        {"server_lr": 0.1, "beta1": 0.7, "beta2": 0.8, "tau": 0.1, "v0": 1.0},
    ),
    *(
        (
            f"{ours}(0.1, bias_correction=True, v0=0.0, eps_form='{form}')",
            "fedopt",
            {
                "rule": rule,
                "server_lr": 0.1,
                "bias_correction": True,
                "v0": 0.0,
                "eps_form": form,
            },
        )
        for ours, rule in (("FedAdam", "adam"), ("FedYogi", "yogi"))
        for form in ("torch", "hf")
    ),
]

CLIENTS: list[Row] = [
    ("LocalOpt(FedAvg(), HeavyBall())", "fedavg", {"local": "momentum"}),
    (
        "LocalOpt(FedAvg(), Adam(beta2=0.999, eps=1e-8, bias_correction=True))",
        "fedavg",
        {"local": "adam"},
    ),
    ("fednova", "fednova", {}),
    ("fednova(momentum=0.5)", "fednova", {"momentum": 0.5}),
    ("fednova(mu=0.5)", "fednova", {"mu": 0.5}),
    ("ServerOpt(FedNova(), SGD(lr=0.5))", "fednova", {"server_lr": 0.5}),
]

CORRECTIONS: list[Row] = [
    ("scaffold", "scaffold", {}),
    ("scaffold(option=1)", "scaffold", {"option": 1}),
    ("scaffold(acar_weights=True)", "scaffold", {"acar_weights": True}),
    ("ServerOpt(SCAFFOLD(), SGD(lr=0.5))", "scaffold", {"server_lr": 0.5}),
    ("scaffoldm", "scaffold_m", {}),
    ("scaffoldm(form='printed')", "scaffold_m", {"form": "printed"}),
    ("ServerOpt(SCAFFOLDm(), SGD(lr=0.5))", "scaffold_m", {"server_lr": 0.5}),
    ("feddyn", "feddyn", {}),
    (
        "feddyn(mu=0.1, prox=0.5, scale='none')",
        "feddyn",
        {"mu": 0.1, "prox": 0.5, "scale": "none"},
    ),
    ("ServerOpt(FedDyn(), SGD(lr=0.5))", "feddyn", {"server_lr": 0.5}),
    ("adabest", "adabest", {}),
    ("ServerOpt(AdaBest(), SGD(lr=0.5))", "adabest", {"server_lr": 0.5}),
    (
        "adabest(discount=False, weights='samples')",
        "adabest",
        {"discount": False, "weights": "samples"},
    ),
    *(
        (
            f"adabest(mu=0.1, beta=0.9, form='{form}', scale='{scale}', prox={prox})",
            "adabest",
            {"mu": 0.1, "beta": 0.9, "form": form, "scale": scale, "prox": prox},
        )
        for form in ("text", "box")
        for scale in ("none", "oracle", "progressive")
        for prox in (0.0, 0.7)
    ),
]

SHARED: list[Row] = [
    *(
        (f"{name}({optimiser}())", name, {"optimiser": optimiser})
        for name in ("fedgbo", "mfl", "mimelite", "mime")
        for optimiser in ("sgdm", "rmsprop", "adam")
    ),
    *(
        (
            f"{name}(Adam(beta1=0.5, beta2=0.8, eps=0.1, v0=0.0), weights='samples')",
            name,
            {
                "optimiser": "adam",
                "beta": 0.5,
                "beta2": 0.8,
                "eps": 0.1,
                "v0": 0.0,
                "weights": "samples",
            },
        )
        for name in ("fedgbo", "mfl", "mimelite", "mime")
    ),
    (
        "ServerOpt(FedGBO(RMSProp()), SGD(lr=0.5))",
        "fedgbo",
        {"optimiser": "rmsprop", "server_lr": 0.5},
    ),
]

WEIGHING: list[Row] = [
    ("ida+fedavg", "ida", {}),
    ("Krum(FedAvg(), f=1, m=1)", "krum", {"f": 1, "m": 1}),
    ("median+fedavg", "median", {}),
    ("ServerOpt(Median(FedAvg()), SGD(lr=0.5))", "median", {"server_lr": 0.5}),
]

BASES: list[Row] = [
    ("fedavg", "fedavg", {}),
    ("fedprox(mu=0.1)", "fedprox", {"mu": 0.1}),
    ("fedavgm", "fedavgm", {}),
    ("fedadam(0.1)", "fedopt", {"server_lr": 0.1}),
    ("scaffold", "scaffold", {}),
    ("scaffoldm", "scaffold_m", {}),
    ("feddyn", "feddyn", {}),
    ("adabest", "adabest", {}),
    ("ida+fedavg", "ida", {}),
]

GLAD: list[Row] = [
    *(
        (
            f"fedglad(gamma=0.1, beta=0.8, groups='{groups}')+{base}",
            "fedglad",
            {"base": name, "base_options": options, "mode": mode, "gamma": 0.1, "beta": 0.8},
        )
        for base, name, options in BASES
        for groups, mode in (("parameter", "group"), ("universal", "universal"))
    ),
    ("fedglad+fedavg", "fedglad", {}),
    ("fedglad+feddyn(h_raw=True)", "fedglad", {"base": "feddyn", "h_raw": True}),
]

CROWD: list[Row] = [
    ("Krum(FedAvg(), f=1, m=3)", "krum", {"f": 1, "m": 3}),
    (
        "fedglad+Krum(FedAvg(), f=1, m=3)",
        "fedglad",
        {"base": "krum", "base_options": {"f": 1, "m": 3}},
    ),
    ("TrimmedMean(FedAvg(), fraction=0.34)", "trimmed_mean", {"trim": 2}),
]
"""Rows for rounds in which all six clients take part."""

TABLE = [*SERVER, *CLIENTS, *CORRECTIONS, *SHARED, *WEIGHING, *GLAD]


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_agrees(row: Row, kind: str) -> None:
    agree(row, random_problem(seed=1, rounds=4, **PROBLEMS[kind]))


@pytest.mark.parametrize("loss", ["softmax", "least_squares"])
@pytest.mark.parametrize("row", CROWD, ids=lambda row: row[0])
def test_agrees_in_a_crowd(row: Row, loss: str) -> None:
    agree(row, random_problem(seed=1, rounds=4, loss=loss, full_participation=True))


@settings(max_examples=60)
@given(
    row=st.sampled_from(TABLE),
    kind=st.sampled_from(list(PROBLEMS)),
    seed=st.integers(0, 10**6),
    engine=st.sampled_from([Sequential(), Compiled(1)]),
)
def test_agrees_on_any_seed(row: Row, kind: str, seed: int, engine: Engine) -> None:
    agree(row, random_problem(seed, rounds=4, **PROBLEMS[kind]), engine)


def agree(row: Row, problem: Problem, engine: Engine | None = None) -> None:
    """Both accounts of all rounds hold the same models, statistics and memories."""
    text, name, options = row
    for ours, theirs, cohort in zip(
        play(text, problem, engine=engine),
        reference.run(problem, name, **options),
        problem.delivering,
        strict=True,
    ):
        close(ours.x, theirs.x, "x", ours.t)
        close(ours.xbar, theirs.xbar, "xbar", ours.t)
        assert (ours.mean is None) == (theirs.delta is None) == (not cohort)
        if cohort and name != "fednova":  # whose mean is per unit of work
            close(ours.mean, theirs.delta, "mean", ours.t)
        for path, value in ours.server.items():
            if not cohort and path in ("fedglad.gsi", "fedglad.factor"):
                assert np.isnan(value).all()
            elif path not in ("events", "n_mean"):  # which the reference keeps as a list of sizes
                close(value, theirs.server[path.split(".")[-1]], path, ours.t)
        assert set(ours.clients) == set(theirs.clients)
        for i, memory in ours.clients.items():
            assert set(memory) == set(theirs.clients[i])
            for key, value in memory.items():
                close(value, theirs.clients[i][key], f"{key} of client {i}", ours.t)


def close(ours: Any, theirs: Any, name: str, t: int) -> None:
    residual = np.abs(np.asarray(ours) - theirs).max() / max(1.0, np.abs(theirs).max())
    assert residual <= TOLERANCE, f"{name} differs by {residual:.1e} in round {t}"
