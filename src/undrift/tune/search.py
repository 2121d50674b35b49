"""Search: the settings of the next trial, a function of the study's seed and of earlier results."""

from __future__ import annotations

import math
import warnings
from importlib.util import find_spec
from itertools import product
from typing import Any

from undrift.config import UndriftError
from undrift.rng import number as seed_of
from undrift.rng import stream
from undrift.system.extras import lacking
from undrift.tune.space import Plain, Space
from undrift.tune.store import Record, Store
from undrift.tune.study import Arm, Settings, Study

POINTS = 5
"""values of a range in a grid"""

NEEDS = {"gp": "scipy", "cmaes": "cmaes"}
"""packages that a search needs, and that Optuna does not install; our extra does"""

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def refuse_lacking(study: Study) -> None:
    """Raise if a package that the search needs is not installed."""
    package = NEEDS.get(study.search)
    if package and find_spec(package) is None:
        raise lacking(package, "tune", f"search={study.search!r}")


def size(study: Study, arm: Arm) -> float:
    """Number of trials that a search has for an algorithm."""
    if study.search == "grid":
        return min(study.most, math.prod(len(points(knob.space)) for knob in arm.knobs))
    return study.most


def draw(study: Study, arm: Arm, earlier: list[Record], store: Store) -> tuple[Settings, Any]:
    """The settings of the next trial, and what Optuna's sampler wants to be kept with it.

    The first trial has the algorithm's own settings, so that the winner is never worse than they.
    """
    number = len(earlier)
    if study.search == "grid":
        return grid(arm, study.seed)[number], {}
    own = all(arm.defaults[knob.name] in knob.space for knob in arm.knobs)
    if own and number == 0:
        return arm.defaults, {}
    if study.search == "qmc":
        shares = halton(study.seed, number, len(arm.knobs))
        both = zip(arm.knobs, shares, strict=True)
        return {knob.name: knob.space.at(share) for knob, share in both}, {}
    return _asked(study, arm, earlier, store)


def points(space: Space) -> tuple[Plain, ...]:
    """The values of a space in a grid."""
    if space.kind == "values":
        return space.values
    if space.kind == "int" and space.high - space.low < POINTS:
        return tuple(range(int(space.low), int(space.high) + 1))
    last = space.ends[1]
    return (*(space.at(k / (POINTS - 1)) for k in range(POINTS - 1)), last)


def grid(arm: Arm, seed: int | None = None) -> list[Settings]:
    """All combinations of the knobs' values; with a seed in random order."""
    names = [knob.name for knob in arm.knobs]
    every = [dict(zip(names, values, strict=True))
             for values in product(*(points(knob.space) for knob in arm.knobs))]  # fmt: skip
    if seed is None:
        return every
    return [every[i] for i in stream(seed, "grid").permutation(len(every))]


def halton(seed: int, number: int, count: int) -> list[float]:
    """A point of the Halton sequence in the unit cube, shifted at random."""
    if count > len(PRIMES):
        raise UndriftError(f"search='qmc' has at most {len(PRIMES)} settings, not {count}")
    shift = stream(seed, "qmc").random(count)
    return [(_radical(number, base) + float(s)) % 1 for base, s in zip(PRIMES, shift, strict=False)]


def _radical(number: int, base: int) -> float:
    """The digits of a number, mirrored at the point."""
    found, scale = 0.0, 1.0 / base
    while number:
        number, digit = divmod(number, base)
        found, scale = found + digit * scale, scale / base
    return found


def _asked(study: Study, arm: Arm, earlier: list[Record], store: Store) -> tuple[Settings, Any]:
    """Ask Optuna, in a study in memory, by a sampler whose seed depends on the trial's number.

    So the answer does not depend on what this process did before, nor on when it was killed.
    """
    optuna = store.optuna
    made = optuna.create_study(
        direction=store.direction, sampler=_sampler(study, len(earlier), optuna)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental features
        for record in earlier:
            made.add_trial(_told(record, store))
        trial = made.ask({knob.name: store.distribution(knob.space) for knob in arm.knobs})
    found = {
        knob.name: trial.params[knob.name]
        if knob.space.kind == "values"
        else knob.space.rounded(trial.params[knob.name])
        for knob in arm.knobs
    }
    return found, made.get_trials(deepcopy=False)[-1].system_attrs


def _sampler(study: Study, number: int, optuna: Any) -> Any:
    seed = seed_of(study.seed, "search", number) % 2**32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match study.search:
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "tpe":
                return optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            case "gp":
                return optuna.samplers.GPSampler(seed=seed)
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _told(record: Record, store: Store) -> Any:
    """A trial for a sampler; one that halving has stopped for now is told as if for good."""
    states, old = store.optuna.trial.TrialState, record.frozen
    state = old.state
    if not state.is_finished() and record.results:
        state = states.PRUNED
    return store.optuna.trial.create_trial(
        state=state,
        value=store.value(record.last) if state.is_finished() and record.last else None,
        params=old.params,
        distributions=old.distributions,
        system_attrs=old.system_attrs,
        intermediate_values={rounds: store.value(one) for rounds, one in record.results.items()},
    )
