"""Updates of all clients beside those of the cohort: what they are; nothing else changes."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tests.federation.small import SIZES, SMALL, clients, gap, run, same_bits
from undrift.config import UndriftError
from undrift.engines import Compiled, Engine, Sequential
from undrift.federation.rounds import Round
from undrift.federation.sampling import MD, AdaFL, Explicit, Sampler, Uniform
from undrift.training.losses import squared_error
from undrift.vectors import cosine

COMPARED = ("all_square", "all_gsi", "cohort_cosine")
TOLD = (
    *("cohort", "delivered", "dropped", "weights", "train_loss", "drift", "gsi", "square"),
    *("square_spread", "bytes_down", "bytes_up", "steps", "samples"),
)


def always(t: int) -> bool:
    return True


def compared(now: Round) -> list[float]:
    return [getattr(now, name) for name in COMPARED]


@pytest.mark.parametrize("name", ["fedavg", "fedglad+fedadam", "scaffold", "mime", "fednova"])
def test_a_cohort_of_all_clients_stands_for_all(name: str) -> None:
    for now in run(name, local=SMALL, compare=always):
        assert (now.all_square, now.all_gsi) == (now.square, now.gsi)
        assert now.cohort_cosine == pytest.approx(1)


@pytest.mark.parametrize("sampler", [Uniform(2), MD(2), AdaFL(2)], ids=repr)
def test_all_clients_do_what_they_would_in_a_round_of_all(sampler: Sampler) -> None:
    state = run("adabest", local=SMALL, sampler=sampler, total=3)[-1].state
    (full,) = run("adabest", local=SMALL, state=copy.deepcopy(state))
    (now,) = run("adabest", local=SMALL, sampler=sampler, compare=always, state=state)
    assert (now.all_square, now.all_gsi) == (full.square, full.gsi)
    assert now.mean is not None
    assert full.mean is not None
    assert now.cohort_cosine == cosine(now.mean.raw, full.mean.raw) < 1


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_all_updates_are_what_they_are_by_hand(weights: str) -> None:
    pairs = clients()
    shares = np.array(SIZES if weights == "samples" else [1] * 5, dtype=float)
    shares /= shares.sum()
    history = run(f"fedavg(weights='{weights}')", sampler=Uniform(2), compare=always)
    for before, now in pairwise(history):
        x = before.server.x.numpy()
        moves = []
        for inputs, targets in pairs:
            y = x
            for _ in range(2):
                y = y - 0.1 * inputs.T @ (inputs @ y - targets) / len(targets)
            moves.append(x - y)
        updates = np.array(moves)
        mean, squares = shares @ updates, (updates**2).sum(axis=1)
        own = before.server.x.numpy() - now.server.x.numpy()
        lengths = np.linalg.norm(mean) * np.linalg.norm(own)
        expected = [
            shares @ squares,
            np.sqrt(shares @ squares / (mean @ mean)),
            mean @ own / lengths,
        ]
        assert compared(now) == pytest.approx(expected)


@pytest.mark.parametrize("engine", [Sequential(), Compiled(2)], ids=repr)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adabest", {"keep_models": True}),
        ("scaffold", {"sampler": AdaFL(2)}),
        ("fedglad+fedadam", {"sampler": MD(3)}),
        ("mime", {}),
        ("ida+feddyn", {}),
    ],
)
def test_nothing_else_changes(name: str, options: dict[str, Any], engine: Engine) -> None:
    options = {"sampler": Uniform(3), "dropout": 0.2, "local": SMALL, "engine": engine} | options
    plain = run(name, total=5, **options)
    probed = run(name, total=5, compare=lambda t: t % 2 == 0, **options)
    for a, b in zip(plain, probed, strict=True):
        assert [getattr(a, told) for told in TOLD] == [getattr(b, told) for told in TOLD]
        assert np.isnan(compared(a)).all()
        assert np.isfinite(compared(b)).all() == (b.t % 2 == 0)
    same_bits(plain[-1].state, probed[-1].state)
    assert gap(plain[-1].state.everyone, probed[-1].state.everyone) == 0


def test_its_time_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal now
        now += 1  # each step takes a second
        return squared_error(outputs, targets)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    options = {"loss": loss, "sampler": Uniform(2), "engine": Sequential(), "compare": always}
    assert [round.seconds for round in run("fedavg", **options)] == 4 * [2 * 2]
    assert now > 4 * 5 * 2


def test_who_drops_out_is_one_of_all_and_who_has_no_samples_is_not() -> None:
    sizes = (*SIZES, 0)
    quiet, noisy = (
        run("fedavg", pairs=clients(sizes), total=1, compare=always, dropout=rate)[0]
        for rate in (0.0, 0.6)
    )
    assert len(noisy.delivered) < len(quiet.delivered) == len(SIZES)
    assert (noisy.all_square, noisy.all_gsi) == (quiet.all_square, quiet.all_gsi)


def test_a_client_outside_the_cohort_that_diverges_is_left_out() -> None:
    pairs = clients()
    pairs[3][0][:] = 1e200
    (now,) = run("fedavg", pairs=pairs, total=1, sampler=Explicit(((0, 1),)), compare=always)
    assert now.dropped == {}
    pairs = [pair for i, pair in enumerate(pairs) if i != 3]
    (without,) = run("fedavg", pairs=pairs, total=1, sampler=Explicit(((0, 1),)), compare=always)
    assert compared(now) == pytest.approx(compared(without))


def test_a_round_without_deliveries_has_nothing_to_compare() -> None:
    pairs = clients((0, 4, 5))
    (now,) = run("mime", pairs=pairs, total=1, sampler=Explicit(((0,),)), compare=always)
    assert np.isnan([*compared(now), now.square, now.square_spread]).all()


@pytest.mark.parametrize("name", ["centralised", "local-only"])
def test_what_has_no_cohorts_is_refused(name: str) -> None:
    with pytest.raises(UndriftError, match="has no cohorts to compare with all clients; leave"):
        run(name, compare=always)
