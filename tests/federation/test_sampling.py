"""Samplers: who takes part in a round."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undrift.config import UndriftError
from undrift.federation.sampling import (
    MD,
    AdaFL,
    Bernoulli,
    Explicit,
    OneClass,
    RoundRobin,
    Sampler,
    Uniform,
    Urn,
)
from undrift.rng import stream

IDS = np.array([1, 3, 4, 7, 8, 9])  # of ten clients, these are registered
SIZES = np.array([10, 20, 30, 40, 0, 100])


def urn(t: int, seed: int = 0) -> Urn:
    return Urn(t, IDS, SIZES, stream(seed, "cohort", t), attention=np.full(10, 0.1))


def draw(sampler: Sampler, rounds: int, seed: int = 0) -> list[tuple[int, ...]]:
    return [sampler.draw(urn(t, seed)).ids for t in range(1, rounds + 1)]


RANDOM = [Uniform(3), Bernoulli(0.4), MD(3), AdaFL(3)]
FIXED = [RoundRobin(4), Explicit(((4, 1), (9,)))]


@pytest.mark.parametrize("sampler", [*RANDOM, *FIXED], ids=repr)
def test_cohorts_are_sorted_registered_and_repeatable(sampler: Sampler) -> None:
    cohorts = draw(sampler, 100)
    for cohort in cohorts:
        assert cohort
        assert list(cohort) == sorted(set(cohort))
        assert set(cohort) <= set(IDS.tolist())
        assert all(type(i) is int for i in cohort)
    assert draw(sampler, 100) == cohorts


@pytest.mark.parametrize("sampler", RANDOM, ids=repr)
def test_cohorts_depend_on_round_and_seed(sampler: Sampler) -> None:
    cohorts = draw(sampler, 20)
    assert len(set(cohorts)) > 3
    assert draw(sampler, 20, seed=1) != cohorts


@pytest.mark.parametrize("sampler", [Uniform(2), AdaFL(2)], ids=repr)
def test_uniform_draws_all_alike(sampler: Sampler) -> None:
    """So does AdaFL while all attention is equal."""
    cohorts = draw(sampler, 3000)
    assert all(len(cohort) == 2 for cohort in cohorts)
    counts = Counter(i for cohort in cohorts for i in cohort)
    assert counts == {i: pytest.approx(1000, abs=120) for i in IDS.tolist()}


def test_bernoulli_draws_each_client_at_its_rate() -> None:
    counts = Counter(i for cohort in draw(Bernoulli(0.5), 3000) for i in cohort)
    rate = 0.5 / (1 - 0.5**6)  # given that somebody came
    assert counts == {i: pytest.approx(3000 * rate, abs=120) for i in IDS.tolist()}
    assert draw(Bernoulli(1.0), 1) == [tuple(IDS.tolist())]


def test_bernoulli_is_never_empty() -> None:
    assert all(draw(Bernoulli(0.01), 300))


@pytest.mark.parametrize(
    "sampler", [Uniform(1), Bernoulli(0.5), MD(1), AdaFL(1), RoundRobin(1)], ids=repr
)
def test_nobody_registered_is_a_clear_error(sampler: Sampler) -> None:
    class Impatient(np.random.Generator):
        draws = 0

        def random(self, *args: object, **options: object) -> object:
            self.draws += 1
            assert self.draws < 100, "drew a hundred times from nobody"
            return super().random(*args, **options)

    nobody = np.array([], dtype=np.int64)
    rng = Impatient(np.random.PCG64(0))
    with pytest.raises(UndriftError, match="clients"):
        sampler.draw(replace(urn(1), registered=nobody, sizes=nobody, rng=rng))


@given(draws=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_md_weights_are_shares_of_the_draws(draws: int, seed: int) -> None:
    cohort = MD(draws).draw(urn(1, seed))
    assert cohort.weights is not None
    assert tuple(cohort.weights) == cohort.ids
    assert sum(cohort.weights.values()) == pytest.approx(1, abs=1e-12)
    for weight in cohort.weights.values():
        assert weight * draws == pytest.approx(round(weight * draws), abs=1e-12)
        assert weight > 0


def test_md_is_unbiased() -> None:
    """A client's weight is its share of all samples, on average; without samples it never comes."""
    total = dict.fromkeys(IDS.tolist(), 0.0)
    for t in range(3000):
        for i, weight in (MD(4).draw(urn(t)).weights or {}).items():
            total[i] += weight / 3000
    assert list(total.values()) == pytest.approx(SIZES / SIZES.sum(), abs=0.02)
    assert total[8] == 0


def test_md_may_draw_more_often_than_there_are_clients() -> None:
    assert len(MD(100).draw(urn(1)).ids) == 5


# AdaFL


@given(
    start=st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
    distances=st.dictionaries(st.integers(0, 5), st.floats(0, 1e3), min_size=1),
    alpha=st.floats(0, 1),
)
def test_attention_follows_the_distances(
    start: list[float], distances: dict[int, float], alpha: float
) -> None:
    """a_i ← α a_i + (1-α)(Σ_P a) d_i/Σ_P d, whose sum is always 1."""
    old = np.array(start) / sum(start)
    new = AdaFL(2, alpha=alpha).learn(old.copy(), distances)
    assert new is not None
    assert new.sum() == pytest.approx(1, abs=1e-12)
    total = sum(distances.values())
    mass = sum(old[i] for i in distances)
    for i in range(6):
        expected = old[i]
        if i in distances and total > 0:
            expected = alpha * old[i] + (1 - alpha) * mass * distances[i] / total
        assert new[i] == pytest.approx(expected, abs=1e-12)


def test_attention_starts_even_and_stays_if_nobody_is_far() -> None:
    attention = AdaFL(2).start(4)
    assert attention.tolist() == [0.25] * 4
    assert np.array_equal(AdaFL(2).learn(attention, {0: 0.0, 3: 0.0}), attention)
    changed = AdaFL(2).learn(attention, {0: 1.0, 3: 0.0})
    assert attention.tolist() == [0.25] * 4
    assert changed == pytest.approx([0.9 * 0.25 + 0.1 * 0.5, 0.25, 0.25, 0.9 * 0.25], abs=1e-12)


def test_attention_decides_who_is_drawn() -> None:
    attention = np.full(10, 0.02)
    attention[7] = 0.82
    cohorts = [AdaFL(1).draw(replace(urn(t), attention=attention)).ids for t in range(1000)]
    share = Counter(cohorts)[(7,)] / 1000
    assert share == pytest.approx(0.82 / 0.92, abs=0.05)  # 0.92 of it is registered


@given(
    attention=st.lists(st.sampled_from([0.0, 5e-324, 1e-300, 0.5]), min_size=12, max_size=12),
    clients=st.integers(1, 6),
)
def test_any_attention_can_be_drawn_from(attention: list[float], clients: int) -> None:
    """Those that have some come before those that have none."""
    drawn = AdaFL(clients).draw(replace(urn(1), attention=np.array(attention))).ids
    assert len(set(drawn)) == clients
    likely = {i for i in IDS.tolist() if attention[i] == 0.5}
    assert set(drawn) <= likely or likely <= set(drawn)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_distances_that_are_no_numbers_change_nothing(bad: float) -> None:
    attention = AdaFL(2).start(4)
    assert np.array_equal(AdaFL(2).learn(attention, {0: 1.0, 3: bad}), attention)


def test_only_adafl_learns() -> None:
    assert AdaFL(3).learns
    for sampler in [*RANDOM[:3], *FIXED]:
        assert not sampler.learns
        assert sampler.start(4) is None
        assert sampler.learn(None, {0: 1.0}) is None


# In turn, and as given


@pytest.mark.parametrize("clients", [1, 2, 4, 6])
def test_round_robin_takes_everybody_in_turn(clients: int) -> None:
    counts = Counter(i for cohort in draw(RoundRobin(clients), 6) for i in cohort)
    assert counts == dict.fromkeys(IDS.tolist(), clients)
    assert draw(RoundRobin(4), 2) == [(1, 3, 4, 7), (1, 3, 8, 9)]


def test_explicit_cohorts_are_repeated() -> None:
    sampler = Explicit(((4, 1), (), (9,)))
    assert draw(sampler, 5) == [(1, 4), (), (9,), (1, 4), ()]


def test_explicit_cohorts_must_exist() -> None:
    with pytest.raises(UndriftError, match="give at least one cohort"):
        Explicit(())
    with pytest.raises(UndriftError, match=r"round 2: clients \[2, 11\] .* not registered"):
        Explicit(((1,), (1, 11, 2))).draw(urn(2))


def test_explicit_cohorts_name_each_client_once() -> None:
    with pytest.raises(UndriftError, match=r"once|twice"):
        Explicit(((1, 3), (4, 4)))


@pytest.mark.parametrize("sampler", [Uniform(7), AdaFL(7), RoundRobin(7)], ids=repr)
def test_more_clients_than_there_are(sampler: Sampler) -> None:
    with pytest.raises(UndriftError, match="cannot draw 7 of 6 clients; use at most 6"):
        sampler.draw(urn(1))


def test_md_needs_samples() -> None:
    nothing = replace(urn(3), sizes=np.zeros(len(IDS), dtype=np.int64))
    with pytest.raises(UndriftError, match="none of the 6 clients registered in round 3 has"):
        MD(2).draw(nothing)


@pytest.mark.parametrize("make", [Uniform, MD, AdaFL, RoundRobin])
@pytest.mark.parametrize("clients", [0, -1, 2.5, True])
def test_a_cohort_has_a_whole_number_of_clients(make: type, clients: object) -> None:
    with pytest.raises(UndriftError, match="clients must be a whole number >= 1"):
        make(clients)


@pytest.mark.parametrize("rate", [0, -0.1, 1.1])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(UndriftError, match="rate must be a number > 0 and <= 1"):
        Bernoulli(rate)


def test_one_class_draws_the_purest_cohort_once() -> None:
    labels = np.array([[5, 5], [0, 9], [1, 9], [8, 0], [2, 8], [0, 0]])
    sampler = OneClass(2, round=3)
    drawn = [sampler.draw(replace(urn(t), labels=labels)).ids for t in range(1, 6)]
    assert drawn[2] == (3, 4)  # 100 % and 90 % of the second class
    others = [Uniform(2).draw(urn(t)).ids for t in range(1, 6)]
    assert drawn[:2] + drawn[3:] == others[:2] + others[3:]
