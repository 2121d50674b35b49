"""Names and their errors: what can be written, what is refused, and what the refusal says."""

from __future__ import annotations

import builtins
import contextlib
import math
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.algorithms import (
    SCAFFOLD,
    AdaBest,
    Centralised,
    FedAvg,
    FedDyn,
    FedNova,
    FedProx,
    LocalOnly,
)
from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.experiment.registry import NAMES, algorithm
from undrift.federation.sampling import SAMPLERS, AdaFL, Explicit, Uniform
from undrift.optim import SGD, Adam, HeavyBall, Plateau, SGDm, Yogi
from undrift.parts import IDA, Clip, FedGLAD, LocalOpt, Prox, ServerOpt
from undrift.training.work import Local

# What can be written


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("fedavg", FedAvg()),
        ("FEDAVG()", FedAvg()),
        (" fedavg\n", FedAvg()),
        ("adabest", AdaBest(0.02, 0.96)),
        ("AdaBest(0.1, beta=0.5)", AdaBest(0.1, 0.5)),
        ("AdaBest(plateau=Plateau(patience=3))", AdaBest(plateau=Plateau(patience=3))),
        ("fedadam", ServerOpt(FedAvg(), Adam(lr=0.01))),
        ("fedavgm", ServerOpt(FedAvg(), HeavyBall(beta=0.9))),
        ("FedAvgM(0.5, form='ema')", ServerOpt(FedAvg(), SGDm(beta=0.5))),
        ("FedAdam(beta1=0.5)", ServerOpt(FedAvg(), Adam(lr=0.01, beta1=0.5))),
        ("FedYogi(0.1, weights='uniform')", ServerOpt(FedAvg(weights="uniform"), Yogi(lr=0.1))),
        ("fedglad+fedadam", FedGLAD(ServerOpt(FedAvg(), Adam(lr=0.01)))),
        ("fedglad(gamma=0.1)+fedprox(mu=0.1)", FedGLAD(FedProx(0.1), gamma=0.1)),
        ("serveropt(SGD(lr=0.5))+scaffold", ServerOpt(SCAFFOLD(), SGD(lr=0.5))),
        ("fedglad+ida+prox(0.2)+feddyn", FedGLAD(IDA(Prox(FedDyn(), 0.2)))),
        ("LocalOpt(fedavg, Adam)", LocalOpt(FedAvg(), Adam())),
        ("fednova(mu=1)", FedNova(mu=1.0)),
        ("local-only", LocalOnly()),
        ("Clip(Local-Only, norm=1)", Clip(LocalOnly(), norm=1.0)),
        ("centralised", Centralised()),
    ],
)
def test_text_names_an_algorithm(text: str, made: Any) -> None:
    assert algorithm(text) == made
    assert algorithm(repr(made)) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("fedglad", FedGLAD(FedAvg())),
        ("ida", IDA(FedAvg())),
        ("FedGLAD(gamma=0.1)", FedGLAD(FedAvg(), gamma=0.1)),
        ("fedglad+ida", FedGLAD(IDA(FedAvg()))),
    ],
)
def test_a_part_alone_is_put_around_fedavg(text: str, made: Any) -> None:
    assert algorithm(text) == made


@pytest.mark.parametrize(
    "made",
    [
        AdaBest(0.1, 1.0, form="box", scale="none", discount=False, prox=0.5, weights="samples"),
        FedGLAD(ServerOpt(IDA(Clip(FedProx(1e-7), 2.5)), Adam(lr=3e5)), groups="universal"),
        FedProx(1e300),
        FedGLAD(FedAvg(), gamma=math.inf),
        Clip(FedAvg(), norm=math.inf),
    ],
    ids=repr,
)
def test_repr_can_be_read_back(made: Any) -> None:
    assert algorithm(repr(made)) == made


@given(mu=st.floats(0, 1e6), beta=st.floats(0, 1), form=st.sampled_from(["text", "box"]))
def test_repr_of_any_numbers_can_be_read_back(mu: float, beta: float, form: str) -> None:
    made = FedGLAD(AdaBest(mu, beta, form=form), beta=beta / 2)
    assert algorithm(repr(made)) == made
    assert hash(algorithm(repr(made))) == hash(made)


def test_repr_shows_options_only_where_they_differ() -> None:
    assert repr(algorithm("adabest(scale='none')")) == "AdaBest(mu=0.02, beta=0.96, scale='none')"
    assert repr(algorithm("fedglad+fedavg(weights='samples')")) == "FedGLAD(FedAvg())"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("uniform(5)", Uniform(5)),
        ("AdaFL(clients=3, alpha=0.5)", AdaFL(3, alpha=0.5)),
        ("Explicit(((0, 1), (2,)))", Explicit(((0, 1), (2,)))),
    ],
)
def test_samplers_have_names_too(text: str, made: Any) -> None:
    assert parse(text, SAMPLERS, "sampler") == made
    assert parse(repr(made), SAMPLERS, "sampler") == made


def test_configs_are_frozen() -> None:
    with pytest.raises(AttributeError):
        AdaBest().mu = 0.5  # type: ignore[misc]


# What is refused, and what the refusal says


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("adabst", ["'adabst'", "did you mean 'AdaBest'?", "FedDyn"]),
        ("Scafold()", ["did you mean 'SCAFFOLD'?"]),
        ("fedgald+fedavg", ["did you mean 'FedGLAD'?"]),
        ("ServerOpt(FedAvg(), Adm())", ["did you mean 'Adam'?"]),
        ("qqqq", ["'qqqq'", "known: ", "AdaBest"]),
        ("AdaBest(mue=0.1)", ["AdaBest", "'mue'", "did you mean 'mu'?", "beta"]),
        ("fedglad(gama=0.1)+fedavg", ["FedGLAD", "did you mean 'gamma'?"]),
        ("FedAdam(bta2=0.9)", ["'bta2'", "did you mean 'beta2'?"]),
        ("FedAdam(beta1=0.5, bta2=0.9)", ["'bta2'", "did you mean 'beta2'?"]),
        ("FedProx(mu=-0.5)", ["FedProx(mu=-0.5)", "mu must be a number >= 0"]),
        ("AdaBest(beta=2)", ["beta must be a number >= 0 and <= 1"]),
        ("FedNova(momentum=1.0)", ["momentum must be a number >= 0 and < 1"]),
        ("Clip(FedAvg(), norm=0)", ["norm must be a number > 0"]),
        ("FedAvg(weights='median')", ["'median'", "must be one of 'samples', 'uniform'"]),
        ("Krum(FedAvg(), f=1.5)", ["f must be a whole number >= 0"]),
        ("Krum(FedAvg(), m=0)", ["m must be a whole number >= 1"]),
        ("FedAdam(v0=-1)", ["v0 must be a number >= 0, or None"]),
        ("FedAvgM(form='fast')", ["'heavy_ball', 'ema'"]),
        ("ServerOpt(FedAvg(), FedAvg())", ["optimiser must be an Optimiser"]),
        ("FedGLAD(Adam())", ["inner must be an Algorithm"]),
        ("AdaBest(plateau=1)", ["plateau must be a Plateau, or None"]),
        ("FedProx(1, 2, 3)", ["FedProx", "positional"]),
        ("Adam()", ["'Adam()'", "not an algorithm", "ServerOpt"]),
        ("plateau", ["not an algorithm"]),
        ("0.1", ["'0.1'", "of the type float"]),
        ("", ["not a valid algorithm"]),
        ("AdaBest(", ["not a valid algorithm", "Name(parameter=value)"]),
        ("fedavg;fedavg", ["not a valid algorithm"]),
        ("0.1+fedavg", ["'0.1' cannot come before '+'"]),
        ("FedProx(mu=0.1, mu=0.2)", ["given twice"]),
    ],
)
def test_errors_say_what_is_wrong_and_what_would_be_right(text: str, parts: list[str]) -> None:
    with pytest.raises(UndriftError) as caught:
        algorithm(text)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("value", [True, None, "0.1", [0.1], math.nan, 1j, "huge"])
def test_a_number_must_be_a_number(value: Any) -> None:
    with pytest.raises(UndriftError, match="mu must be a number >= 0"):
        FedProx(10**400 if value == "huge" else value)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, -1])
def test_a_whole_number_must_be_whole(value: Any) -> None:
    with pytest.raises(UndriftError, match="patience must be a whole number >= 1"):
        Plateau(patience=value)


@pytest.mark.parametrize("value", [1, 0, "True", None])
def test_a_flag_must_be_true_or_false(value: Any) -> None:
    with pytest.raises(UndriftError, match="discount must be True or False"):
        AdaBest(discount=value)


def test_whole_numbers_become_floats_where_those_are_meant() -> None:
    assert repr(FedProx(1)) == "FedProx(mu=1.0)"


def test_local_work_is_checked() -> None:
    with pytest.raises(UndriftError, match="epochs or steps, not both"):
        Local(epochs=1, steps=2)
    with pytest.raises(UndriftError, match="steps must be a whole number >= 1 and <= 1e"):
        Local(steps=10**9)
    with pytest.raises(UndriftError, match="batching must be one of 'bootstrap', 'wrap'"):
        Local(batching="bootstrp")


# Text is never executed


HOSTILE = [
    "__import__('os').system('true')",
    "FedProx(mu=__import__('os').system('true'))",
    "FedAvg().__class__",
    "FedAvg.__init__()",
    "FedProx.mu",
    "(lambda: FedAvg())()",
    "FedProx(mu=(lambda: 1)())",
    "[FedAvg() for _ in range(3)][0]",
    "FedProx(mu=sum(1 for _ in (1,)))",
    "FedProx(mu=[1][0])",
    "FedProx(mu=2**3)",
    "FedProx(mu=f'{1}')",
    "FedProx(mu=1 if True else 2)",
    "FedProx(*[0.1])",
    "FedProx(**{'mu': 0.1})",
    "FedProx(mu=(x := 1))",
    "FedProx({[]: 1})",
    "FedProx(mu={{}})",
    "eval('FedAvg()')",
    "print",
    "fed\0avg",
    "FedProx(mu=1" + "0" * 400 + ")",
    "FedProx(mu=" + "9" * 5000 + ")",
]
NESTED = {
    "parentheses": "(" * 5000 + "fedavg" + ")" * 5000,
    "parts": "Prox(" * 5000 + "FedAvg()" + ")" * 5000,
    "parts, a few": "Prox(" * 80 + "FedAvg()" + ")" * 80,
    "lists": "FedProx(mu=" + "[" * 80 + "]" * 80 + ")",
    "signs": "FedProx(mu=" + "-" * 1500 + "1)",
    **{f"{n} sums": "+".join(["prox"] * n + ["fedavg"]) for n in (900, 1500, 3000, 9000)},
}


@pytest.fixture
def no_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("text was executed")

    for name in ("eval", "exec"):
        monkeypatch.setattr(builtins, name, forbidden)
    monkeypatch.setattr(os, "system", forbidden)


@pytest.mark.usefixtures("no_execution")
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:40].replace("\0", "0"))
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(UndriftError):
        algorithm(text)


@pytest.mark.usefixtures("no_execution")
@pytest.mark.parametrize("kind", NESTED)
def test_deep_nesting_is_refused(kind: str) -> None:
    with pytest.raises(UndriftError):
        algorithm(NESTED[kind])


TOKENS = ["FedAvg", "FedProx", "fedglad", "Adam", "mu", "=", "0.1", "-1", "(", ")", "()", "+", ","]
TOKENS += ["[", "]", "{", "}", "*", ".", ":", "'", "\\", " ", "\n", "\0", "é", "None", "1e999"]


@settings(max_examples=300)
@given(text=st.lists(st.sampled_from(TOKENS), max_size=8).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UndriftError):
        algorithm(text)


def test_every_name_is_listed_once_in_any_case() -> None:
    assert len({name.lower() for name in NAMES}) == len(NAMES)
