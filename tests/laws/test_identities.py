"""Papers that are one algorithm, or one that we have in some setting (docs/reference/family.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from tests.laws.pairs import (
    FULL,
    FULL_BATCH,
    TOLERANCE,
    UNEQUAL,
    differ,
    equal,
    gap,
    over_seeds,
    problem_of,
)
from tests.laws.play import play
from undrift.algorithms import SCAFFOLD, FedAvg, FedDyn
from undrift.core import Client, Grad, Part, RoundFacts, Struct, Vector
from undrift.experiment.registry import GROUPS, algorithm
from undrift.measure.cost import messages
from undrift.vectors import safe_beta

VOID = {"with_void_round": True, "changing_population": True}
ANY = UNEQUAL | VOID

SAME: list[tuple[str, str, dict[str, Any]]] = [
    ("fedcm(alpha=0.3)", "FedGBO(SGDm(beta=0.7))", ANY),
    ("fedglad(gamma=9)+fedcm(alpha=0.3)", "fedglad(gamma=9)+FedGBO(SGDm(beta=0.7))", ANY),
    (
        "ServerOpt(FedCM(alpha=0.3), SGD(lr=0.5))",
        "ServerOpt(FedGBO(SGDm(beta=0.7)), SGD(lr=0.5))",
        ANY,
    ),
    ("FedAvg-M(alpha=0.3)", "fedcm(alpha=0.3)", ANY),
    ("FedACG(beta=0.7, mu=0.1)", "Prox(AdaBest(mu=0.0, beta=0.7), mu=0.1)", ANY),
    ("FedDC(mu=0.1, control=False)", "FedDyn(mu=0.1)", ANY),
    ("FedDC(mu=0.1, control=False, duals='active')", "FedDyn(mu=0.1, duals='active')", ANY),
    ("Scaffnew()", "SCAFFOLD()", FULL),
    ("FedSpeed(rho=0.0)", "FedDyn(mu=0.1, scale='none')", ANY),
    ("FedSpeed(share=0.0, form='paper')", "FedDyn(mu=0.1, scale='none', duals='active')", ANY),
    (
        "Momentum(SAM(FedAvg(), rho=0.1), alpha=0.3)",
        "SAM(Momentum(FedAvg(), alpha=0.3), rho=0.1)",
        ANY,
    ),
    ("Momentum(FedAvg(), alpha=1.0)", "FedAvg()", ANY),
    ("Momentum(SCAFFOLD(), alpha=1.0)", "SCAFFOLD()", ANY),
    ("Momentum(SCAFFOLDm(), alpha=0.3)", "Momentum(SCAFFOLD(), alpha=0.3)", VOID),
    ("LocalOpt(SCAFFOLDm(), HeavyBall())", "LocalOpt(SCAFFOLD(), HeavyBall())", VOID),
    (
        "LocalOpt(Momentum(SCAFFOLD(), alpha=0.3), SGDm(beta=0.5))",
        "LocalOpt(Momentum(SCAFFOLD(), alpha=0.3), HeavyBall(lr=0.5, beta=0.5))",
        ANY,
    ),
    ("SAM(SCAFFOLD(), rho=0.0)", "SCAFFOLD()", ANY),
    ("ASAM(FedAvg(), rho=0.0)", "FedAvg()", ANY),
    ("FedHyper(SCAFFOLD(), bound=1.0)", "SCAFFOLD()", ANY),
    ("FedInit(FedDyn(), beta=0.0, form='paper')", "FedDyn()", ANY),
    ("FedInit(SCAFFOLD(), beta=0.0)", "SCAFFOLD()", ANY),
    ("FedVARP()", "FedAvg(weights='uniform')", FULL | UNEQUAL),
    ("MIFA()", "FedAvg(weights='uniform')", FULL | UNEQUAL),
    ("FedAU()", "FedAvg(weights='uniform')", FULL | UNEQUAL),
    ("DeltaSGD(start=0.1, growth=0.0, c=1e-12)", "FedAvg()", ANY | {"lr_decay": 1.0}),
]


@pytest.mark.parametrize(("a", "b", "kind"), SAME)
@over_seeds
def test_the_family(a: str, b: str, kind: dict[str, Any], seed: int) -> None:
    equal(a, b, problem_of(seed, **kind))


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ("Scaffnew()", "SCAFFOLD()", FULL | UNEQUAL),
        ("Scaffnew()", "SCAFFOLD()", {}),
        ("FedSpeed()", "FedSpeed(form='paper')", {}),
        ("FedDC(mu=0.1)", "FedDC(mu=0.1, duals='active')", {}),
        ("FedVARP()", "MIFA()", {}),
        ("FedVARP()", "FedAvg(weights='uniform')", {}),
        ("FedAU()", "FedAvg(weights='uniform')", {}),
        ("Momentum(SCAFFOLDm(), alpha=0.3)", "Momentum(SCAFFOLD(), alpha=0.3)", UNEQUAL),
    ],
)
def test_where_the_family_parts(a: str, b: str, kind: dict[str, Any]) -> None:
    differ(a, b, problem_of(1, **kind))


FAMILIES = run_path(str(Path(__file__).parents[2] / "docs" / "families.py"))
WHEN = {
    "": ANY,
    FAMILIES["SAME_STEPS"]: VOID,
    FAMILIES["EVERYBODY"]: FULL | UNEQUAL,
    f"{FAMILIES['EVERYBODY']} {FAMILIES['SAME_STEPS']}": FULL,
}
"""what the documentation says of an identity → the problems on which it must hold"""


@pytest.mark.parametrize(("a", "b", "when"), FAMILIES["IDENTITIES"].values())
def test_identities_that_are_documented(a: str, b: str, when: str) -> None:
    equal(a, b, problem_of(2, **WHEN[when]))


@pytest.mark.parametrize(
    "name", [name for name in FAMILIES["names"]() if FAMILIES["neutral"](name)]
)
def test_neutral_settings_that_are_documented(name: str) -> None:
    """With them, a part or name is the algorithm inside, an algorithm FedAvg."""
    inner = "FedAvg(weights='uniform'), " if name in GROUPS["parts"] else ""
    made = algorithm(f"{name}({inner}{FAMILIES['neutral'](name).replace('inf', '1e300')})")
    inside = made.core if isinstance(made, Part) else FedAvg(weights=made.weights)
    problem = problem_of(3, **ANY)
    for one, two in zip(play(made, problem), play(inside, problem), strict=True):
        assert gap(one.x, two.x) <= TOLERANCE


@over_seeds
def test_the_momentum_of_fedcm_is_that_of_fedgbo(seed: int) -> None:
    problem = problem_of(seed, **ANY)
    fedgbo = play("FedGBO(SGDm(beta=0.7))", problem)
    for now, other in zip(play("fedcm(alpha=0.3)", problem), fedgbo, strict=True):
        assert gap(now.server["momentum.m"], other.server["stats.m"]) <= TOLERANCE


@over_seeds
def test_fedexp_fedglad_and_auto_beta_use_one_number(seed: int) -> None:
    """GSI² of the first round; each makes something else of it."""
    problem = problem_of(seed, rounds=1, clients=8, full_participation=True)
    uniform = "FedAvg(weights='uniform')"
    glad = play(f"FedGLAD({uniform}, groups='universal')", problem)[0]
    square = glad.server["fedglad.gsi"].item() ** 2
    step = play(f"FedExP({uniform}, eps=0.0)", problem)[0].server["fedexp.factor"]
    updates = play("AdaBest(beta='auto')", problem)[0].server["updates"]
    assert step == pytest.approx(max(1, square / 2), rel=1e-9)
    assert updates == pytest.approx(min(8, square), rel=1e-9)


def test_auto_beta_is_no_multiple_of_that_number() -> None:
    """The counter-example of docs/reference/family.md: the same G, another age."""
    ways = [1 / (1 - safe_beta(8.0, 8, age)) for age in (1.0, 4.0)]
    assert ways == pytest.approx([2 * 8**0.5, 8.5], abs=1e-9)


@dataclass(frozen=True)
class Controlled(FedDyn):
    """FedDyn whose directions are shifted by SCAFFOLD's controls, which live beside it."""

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return super().init_server(x, groups) | Struct(beside=SCAFFOLD().init_server(x, groups))

    def init_client(self, x: Vector) -> Struct:
        return super().init_client(x) | Struct(beside=SCAFFOLD().init_client(x))

    def download(self, s: Struct) -> Struct:
        return super().download(s) | Struct(beside=SCAFFOLD().download(s.beside | Struct(x=s.x)))

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        def controlled(y: Vector) -> Vector:
            return SCAFFOLD().direction(grad, Struct(y=y), down.beside, me.beside, client)

        return super().direction(controlled, local, down, me, client)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        up, kept = super().upload(local, down, me, client)
        control, beside = SCAFFOLD().upload(local, down.beside, me.beside, client)
        return up | Struct(beside=control), kept | Struct(beside=beside)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        _, beside = SCAFFOLD().update(s.beside, mean.beside, round)
        return d, changes | Struct(beside=s.beside | beside)


@over_seeds
def test_feddc_is_feddyn_with_the_controls_of_scaffold(seed: int) -> None:
    problem = problem_of(seed, **ANY)
    both = play(Controlled(mu=0.1), problem)
    for now, other in zip(play("FedDC(mu=0.1)", problem), both, strict=True):
        assert gap(now.x, other.x) <= TOLERANCE
        assert gap(now.server["c"], other.server["beside.c"]) <= TOLERANCE


@over_seeds
def test_fedexp_without_room_steps_as_fedavg_and_deploys_the_mean(seed: int) -> None:
    problem = problem_of(seed, **ANY)
    x = problem.start
    plain = play("scaffold", problem)
    for now, other in zip(play("FedExP(SCAFFOLD(), eps=1e300)", problem), plain, strict=True):
        assert gap(now.x, other.x) <= TOLERANCE
        if now.mean is not None:
            assert gap(now.xbar, (x + now.x) / 2) <= TOLERANCE
        x = now.x
    kind = {**FULL, **FULL_BATCH, "loss": "least_squares"}
    base = problem_of(seed, **kind)
    twins = replace(base, xs=[base.xs[0]] * 5, ys=[base.ys[0]] * 5)
    for now, same in zip(play("FedExP(eps=0.0)", twins), play("fedavg", twins), strict=True):
        assert gap(now.x, same.x) <= TOLERANCE  # all updates are equal


def test_scaffnew_sends_half_of_what_scaffold_sends() -> None:
    ours, theirs = (messages(algorithm(name), 10) for name in ("scaffnew", "scaffold"))
    assert 2 * ours.up.entries == theirs.up.entries
    assert 2 * ours.down.entries == theirs.down.entries
