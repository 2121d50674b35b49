"""Replay: what it takes, what its snapshots hold, what it refuses."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import undrift
from undrift import MD, Plan, UndriftError, algorithm, replay
from undrift.engines import Compiled, Sequential, Threads
from undrift.federation.sampling import Urn

RNG = np.random.default_rng(3)
SIZES = (4, 6, 5)
CLIENTS = [(RNG.normal(size=(n, 2)), RNG.integers(0, 3, n)) for n in SIZES]
CLIENTS[0][1][0] = 2
VALUES = [(x, x @ [1.0, -2.0] + 0.1 * i) for i, (x, _) in enumerate(CLIENTS)]
PLANS = [Plan([0, 1]), Plan([]), Plan([1, 2])]


def run(name: str, plans: Any = PLANS, **options: Any) -> list[undrift.Snapshot]:
    return replay(algorithm(name), CLIENTS, plans, **{"steps": 2} | options)


def test_lists_are_not_rounded_to_32_bits() -> None:
    lists = [(x.tolist(), y.tolist()) for x, y in VALUES]
    start = [0.1, 0.2, 0.3]
    options: Any = {"model": "least_squares", "steps": 2}
    a = replay(algorithm("fedavg"), VALUES, PLANS, start=np.array(start), **options)
    b = replay(algorithm("fedavg"), lists, PLANS, start=start, **options)
    assert all(np.array_equal(one.x, two.x) for one, two in zip(a, b, strict=True))


@pytest.mark.parametrize("engine", [Compiled(2), Threads(2)])
def test_engines_agree(engine: Any) -> None:
    batches = {1: [[0, 1], [2], [5, 5, 3]], 2: [[0]]}
    plans = [*PLANS, Plan([1, 2], batches=batches)]
    for a, b in zip(run("adabest", plans), run("adabest", plans, engine=engine), strict=True):
        np.testing.assert_allclose(a.x, b.x, rtol=1e-13)
        np.testing.assert_allclose(a.clients[1]["h"], b.clients[1]["h"], rtol=1e-13)


def test_the_compiled_engine_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a local step runs in Python")

    engine = Compiled(1)
    run("adabest", engine=engine)
    monkeypatch.setattr("undrift.training.trainer.Trainer.walk", refuse)
    run("adabest", engine=engine)
    with pytest.raises(AssertionError, match="in Python"):
        run("adabest", engine=Sequential())


def test_models_weights_and_who_delivered() -> None:
    first, void, last = run("fedavg")
    assert [one.delivered for one in (first, void, last)] == [(0, 1), (), (1, 2)]
    assert first.weights == {0: 0.4, 1: 0.6}
    assert void.weights == {}
    np.testing.assert_allclose(0.4 * first.models[0] + 0.6 * first.models[1], first.x)
    assert not first.models[2].any()  # the start
    assert np.array_equal(last.models[0], first.models[0])
    mean = sum(n * last.models[i] for i, n in enumerate(SIZES)) / sum(SIZES)
    np.testing.assert_allclose(last.everyone, mean, rtol=1e-14)


def test_given_weights_take_the_place_of_the_algorithm_s() -> None:
    (one,) = run("fedavg", [Plan([0, 2], weights={0: 1, 2: 3})])
    assert one.weights == {0: 0.25, 2: 0.75}
    np.testing.assert_allclose(one.x, 0.25 * one.models[0] + 0.75 * one.models[2])


def test_md_sampling_can_be_replayed() -> None:
    drawn = MD(5).draw(Urn(1, np.arange(3), np.array(SIZES), np.random.default_rng(0)))
    (one,) = run("fedavg", [Plan(drawn.ids, weights=drawn.weights)])
    assert one.weights == pytest.approx(drawn.weights)


def test_what_the_update_used() -> None:
    nova = run("fednova", steps=[1, 3, 2])
    assert nova[0].used["work"] == pytest.approx(0.4 * 1 + 0.6 * 3)
    assert nova[1].used == {}
    step = sum(w * -nova[0].models[i] / (1, 3)[i] for i, w in nova[0].weights.items())
    np.testing.assert_allclose(-nova[0].x, nova[0].used["work"] * step)
    (mime,) = run("mime", [Plan([0, 1])], model="softmax")
    (plain,) = replay(
        algorithm("fedavg(weights='uniform')"), CLIENTS, [Plan([0, 1])], lr=1.0, steps=1
    )
    np.testing.assert_allclose(mime.used["c"], -plain.x)  # the mean gradient at the start


@pytest.mark.parametrize("optimiser", ["SGDm()", "RMSProp()", "Adam(lr=0.5)"])
def test_the_gradient_that_fedgbo_recovered_is_the_mean_of_the_path_s(optimiser: str) -> None:
    """With one step, it is the mean gradient at the cloud model."""
    history = run(f"fedglad(gamma=1)+fedgbo({optimiser})", steps=1, lr_decay=0.5)
    assert "gradient" not in history[1].used
    (at,) = replay(
        algorithm("fedavg(weights='uniform')"),
        CLIENTS,
        [Plan([1, 2])],
        start=history[1].x,
        lr=1.0,
    )
    np.testing.assert_allclose(history[2].used["gradient"], history[1].x - at.x, atol=1e-13)


def test_krum_s_kept_set() -> None:
    (one,) = run("Krum(FedAvg(), f=0, m=2)", [Plan([0, 1, 2])])
    assert sorted(one.weights.values()) == [0, 0.5, 0.5]


def test_fedglad_s_running_mean_before_and_after_and_void_rounds() -> None:
    first, void, last = run("fedglad(gamma=10, beta=0.75)+fedavg")
    assert np.array_equal(first.used["fedglad.B"], first.server["fedglad.gsi"])
    assert np.isnan(void.server["fedglad.gsi"]).all()
    assert np.isnan(void.server["fedglad.factor"]).all()
    B, gsi = last.used["fedglad.B"], last.server["fedglad.gsi"]
    assert np.array_equal(B, void.server["fedglad.B"])
    np.testing.assert_allclose(last.server["fedglad.factor"], gsi / B)
    np.testing.assert_allclose(last.server["fedglad.B"], 0.75 * B + 0.25 * gsi)


def test_classes_that_nobody_has() -> None:
    (one,) = run("fedavg", [Plan([0])], classes=5)
    assert one.x.shape == (5 * 2 + 5,)


def test_steps_as_a_list_are_those_of_a_mapping() -> None:
    a, b = run("fedavg", steps=[3, 1, 2]), run("fedavg", steps={0: 3, 2: 2})
    assert np.array_equal(a[-1].x, b[-1].x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "Local(lr=-1.0): lr must be a number > 0"),
        ({"classes": 2}, "classes=2: must be a whole number >= 3: the largest label is 2"),
        ({"classes": "4"}, "classes='4': must be a whole number"),
        ({"classes": 2, "model": "least_squares"}, "only model='softmax' takes it"),
        ({"steps": [1, 2]}, "steps=[1, 2]: give 3 numbers, one for each client"),
        ({"steps": {7: 2}}, "steps: there are no clients [7]"),
        ({"steps": [1, 2, 0]}, "steps=0 for client 2"),
        ({"start": "zero"}, "start: not an array of numbers"),
        ({"plans": [[0, 1]]}, "round 1: [0, 1] is no plan; give Plan(delivers=[...])"),
        ({"plans": [Plan([0], weights={1: 1.0})]}, "weights are given for clients [1]"),
        ({"plans": [Plan([0], weights={0: math.nan})]}, "must be numbers >= 0"),
        ({"plans": [Plan([0], weights={0: 0})]}, "not all of them 0"),
        ({"plans": [Plan([0], weights={0: "1"})]}, "must be numbers >= 0"),
        ({"plans": [Plan(0)]}, "round 1: delivers=0: give a list of clients' ids"),
        ({"plans": [Plan([0], registered=[0, 1.5])]}, "registered=[0, 1.5]: give a list"),
        ({"plans": [Plan([0], batches={0: [0, 1]})]}, "client 0: batches=[0, 1]: give a list of"),
        ({"plans": [Plan([0], batches={0: [[0.5]]})]}, "client 0: batches=[[0.5]]: give a list of"),
        ({"plans": []}, "plans=[]: give a Plan for each round"),
        ({"engine": "compiled"}, "such as undrift.engines.Compiled()"),
    ],
)
def test_mistakes_are_told_without_private_names(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UndriftError) as error:
        run("fedavg", **options)
    assert message in str(error.value)
    assert "_Script" not in str(error.value)


def test_ragged_inputs_are_told_with_the_client() -> None:
    with pytest.raises(UndriftError, match="inputs of client 1: not an array of numbers"):
        replay(algorithm("fedavg"), [([[1.0]], [0]), ([[1.0], [1.0, 2.0]], [0, 1])], [Plan([0])])


def test_clients_are_pairs() -> None:
    with pytest.raises(UndriftError, match="client 1: give a pair"):
        replay(algorithm("fedavg"), [([[1.0]], [0]), ([[1.0]],)], [Plan([0])])  # type: ignore[list-item]


def test_a_dtype_is_kept() -> None:
    (one,) = run("fedavg", [Plan([0])], dtype=torch.float32)
    assert one.x.dtype == one.models[0].dtype == np.float32
