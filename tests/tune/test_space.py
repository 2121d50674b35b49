"""Spaces and knobs: read, refused, and there by default."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tune.studies import experiment, study
from undrift.config import UndriftError
from undrift.experiment.registry import GROUPS
from undrift.tune.knobs import knobs, turned, value
from undrift.tune.search import halton, points
from undrift.tune.space import space
from undrift.tune.tables import settings_text


def test_spaces_are_read() -> None:
    assert [space("log(0.01, 1)").at(share) for share in (0, 0.5)] == [0.01, 0.1]
    assert space("linear(0,1)").at(0.25) == 0.25
    assert {space("int(2, 3)").at(share) for share in (0, 0.49, 0.5, 0.99)} == {2, 3}
    assert space("0.2,0.4").values == space([0.2, 0.4]).values == (0.2, 0.4)
    assert space("text, box").values == ("text", "box")
    assert [str(space(str(space(one)))) for one in ("log(0.1, 3)", "1, 2")] == [
        "log(0.1, 3)",
        "1, 2",
    ]
    assert points(space("log(0.01, 1)")) == (0.01, 0.03162, 0.1, 0.3162, 1.0)


@pytest.mark.parametrize("share", [0, 0.123, 0.9999999])
def test_drawn_values_are_within_their_space(share: float) -> None:
    for text in ("log(0.0012345, 0.98765)", "linear(0.12345, 0.123456)", "int(3, 9)"):
        assert space(text).at(share) in space(text)


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"local.lr": "log(0,1)"}, "begins above 0"),
        ({"local.lr": "log(1)"}, "the smallest and the largest"),
        ({"local.lr": "linear(1, 1)"}, "less than the second"),
        ({"local.batch_size": "int(1.5, 2)"}, "whole numbers"),
        ({"local.lr": "0.1, 0.1"}, "different ones"),
        ({"local.lr": []}, "give log"),
        ({"AdaBest.mo": "0.1"}, "did you mean 'AdaBest.mu'"),
        ({"AdaBest.beta": "linear(0, 2)"}, "beta must be a number >= 0 and <= 1"),
        ({"FedProx.mu": "0.1"}, "nothing of AdaBest"),
        ({"local.lr": "0.1", "Local.lr": "0.2"}, "named twice"),
    ],
)
def test_what_makes_no_sense_is_refused(over: dict[str, Any], why: str) -> None:
    with pytest.raises(UndriftError, match=why):
        study("adabest", "fedprox", over=over)


def test_a_study_needs_validation_clients() -> None:
    with pytest.raises(UndriftError, match="--validation 10"):
        study(experiment=experiment(validation=0))


def test_names_follow_the_composition() -> None:
    made = experiment("FedGLAD(ServerOpt(AdaBest(), Adam(lr=0.1)))")
    names = ["FedGLAD.gamma", "AdaBest.mu", "ServerOpt.Adam.lr", "local.lr", "sampler.clients"]
    found = knobs(made, dict.fromkeys(names, "1"))
    assert [knob.name for knob in found] == [
        *("local.lr", "sampler.clients", "FedGLAD.gamma", "AdaBest.mu", "Adam.lr")
    ]
    assert [value(made, knob) for knob in found] == [0.1, 2, 0.02, 0.02, 0.1]
    new = turned(made, {"Adam.lr": 0.5, "AdaBest.mu": 1, "local.lr": 2}, found)
    assert repr(new.algorithms[0]) == (
        "FedGLAD(ServerOpt(AdaBest(mu=1.0, beta=0.96), Adam(lr=0.5)))"
    )
    assert (new.local.lr, new.local.steps) == (2.0, 1)
    assert [knob.name for knob in knobs(experiment("fedadam"), {"FedAdam.lr": [1]})] == ["Adam.lr"]
    twice = experiment("ServerOpt(LocalOpt(FedAvg(), Adam()), Adam())")
    with pytest.raises(UndriftError, match="say which"):
        knobs(twice, {"Adam.lr": [1]})
    assert knobs(twice, {"LocalOpt.Adam.beta1": [0.5]})[0].name == "LocalOpt.Adam.beta1"


def test_every_algorithm_has_a_default_space_around_its_defaults() -> None:
    for name in (*GROUPS["algorithms"], *GROUPS["parts"], *GROUPS["compositions"]):
        made = experiment(name)
        found = knobs(made, {})
        assert all(value(made, knob) in knob.space for knob in found), name
        assert found[0].name == "local.lr"
    for name in GROUPS["optimisers"].keys() - {"Plateau"}:
        assert knobs(experiment(f"ServerOpt(FedAvg(), {name}())"), {})[1].name == f"{name}.lr"
        around = knobs(experiment(f"LocalOpt(FedAvg(), {name}())"), {})
        assert f"{name}.lr" not in [knob.name for knob in around]  # as local.lr is
    assert [k.name for k in knobs(experiment("AdaBest(beta='auto')"), {})[1:]] == ["AdaBest.mu"]


def test_quasi_random_points_fill_the_cube() -> None:
    found = [halton(0, number, 2) for number in range(36)]
    assert {(int(x * 4), int(y * 3)) for x, y in found} == {
        (i, j) for i in range(4) for j in range(3)
    }


def test_settings_are_told_without_needless_digits() -> None:
    told = settings_text({"local.epochs": 1.0, "local.lr": 0.1, "mu": 1e38, "name": "wrap"})
    assert told == "local.epochs=1, local.lr=0.1, mu=1e+38, name=wrap"
