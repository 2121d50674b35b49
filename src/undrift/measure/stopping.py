"""Stop rules: what ends a trial before its last round."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from undrift.config import Config, UndriftError, at, choice, real, shortened, whole
from undrift.config.expressions import parse

Rows = Sequence[Mapping[str, Any]]
"""Rows of metrics of one trial, in order; None where a metric has no value."""

_POWERS = ("", "k", "m", "g", "t", "p")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([kmgtp]?)(i?)b", re.IGNORECASE)


@dataclass(frozen=True)
class StopRule(Config):
    """Base of stop rules. They are judged after each evaluation, and the first that applies ends
    the trial: it is finished, and its model is deployed."""

    def stops(self, rows: Rows) -> bool:
        """Whether a trial with these rows ends after the last one.

        Use nothing else, no clock and no memory: a trial that was interrupted is judged again.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Target(StopRule):
    """Stop when the deployed model has an accuracy, on the test data or on held-out clients.

    accuracy     as a share, such as 0.9
    evaluations  number of evaluations in a row that must reach it
    on           "test" or "validation"
    """

    accuracy: float = real(gt=0, le=1)
    _: KW_ONLY
    evaluations: int = whole(1, ge=1)
    on: str = choice("test", "validation")

    def stops(self, rows: Rows) -> bool:
        last = _values(rows, "accuracy", self.on)[-self.evaluations :]
        return len(last) == self.evaluations and min(last) >= self.accuracy


@dataclass(frozen=True)
class Patience(StopRule):
    """Stop when the best accuracy is old: so many evaluations have not exceeded it.

    evaluations  number of evaluations since the best one
    delta        by how much a better one must exceed it, such as 0.001
    on           "test" or "validation"

    Where there is no accuracy, the lowest loss is the best.
    """

    evaluations: int = whole(20, ge=1)
    _: KW_ONLY
    delta: float = real(0.0, ge=0)
    on: str = choice("test", "validation")

    def stops(self, rows: Rows) -> bool:
        values = _values(rows, "accuracy", self.on)
        values = values or [-loss for loss in _values(rows, "loss", self.on)]
        best, place = -math.inf, 0
        for here, value in enumerate(values):
            if value > best + self.delta:
                best, place = value, here
        return len(values) > place + self.evaluations


@dataclass(frozen=True)
class Budget(StopRule):
    """Stop when a trial has used up what it may cost, in any of these.

    bytes    down and up of all clients: a number, or a text such as '2 GB'
    flops    floating-point operations of all clients
    rounds   of training
    seconds  of training; not reproducible, unlike the others: times differ from run to run

    Those of a fork include what the run cost that it was forked from.
    """

    _: KW_ONLY
    bytes: float | str | None = None
    flops: float | None = real(None, gt=0, optional=True)
    rounds: int | None = whole(None, ge=1, optional=True)
    seconds: float | None = real(None, gt=0, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bytes is not None and not size_of(self.bytes) > 0:
            self.refuse("bytes must be a number > 0, or a text such as '2 GB'", bytes=self.bytes)
        if not self._limits:
            self.refuse("give a limit, such as bytes='2 GB', flops=1e12 or rounds=50")

    @property
    def _limits(self) -> dict[tuple[str, ...], float]:
        """Metrics whose sum is limited → the limit."""
        limits = {
            ("bytes_down", "bytes_up"): None if self.bytes is None else size_of(self.bytes),
            ("flops",): self.flops,
            ("round",): self.rounds,
            ("seconds",): self.seconds,
        }
        return {names: limit for names, limit in limits.items() if limit is not None}

    def stops(self, rows: Rows) -> bool:
        return any(
            sum(row.get(name) or 0 for name in names) >= limit
            for row in rows[-1:]
            for names, limit in self._limits.items()
        )


STOPS = {"Target": Target, "Patience": Patience, "Budget": Budget}
"""All stop rules by name."""


def stop_rules(given: Any) -> tuple[StopRule, ...]:
    """The rules of an experiment, from objects or texts."""
    if not isinstance(given, list | tuple):
        raise UndriftError(f'stop={shortened(given)}: give a list, such as ["Target(0.9)"]')
    rules = []
    for position, one in enumerate(given):
        with at("stop", position):
            rule = parse(one, STOPS, "stop rule") if isinstance(one, str) else one
            if not isinstance(rule, StopRule):
                raise UndriftError(f'{shortened(one)} is not a stop rule, such as "Target(0.9)"')
        rules.append(rule)
    return tuple(rules)


def first_to_stop(rules: Sequence[StopRule], rows: Rows) -> StopRule | None:
    """The first of the rules that ends a trial after the last of these rows; None if none does."""
    for rule in rules:
        try:
            if rule.stops(rows):
                return rule
        except Exception as error:  # whatever a user's own may raise
            raise UndriftError(f"{rule!r}: {type(error).__name__}: {error}") from error
    return None


def _values(rows: Rows, metric: str, on: str) -> list[float]:
    """The values of a metric of the deployed model, without rows that have none."""
    name = metric if on == "test" else f"{on}_{metric}"
    values = [math.nan if row.get(name) is None else float(row[name]) for row in rows]
    return [value for value in values if not math.isnan(value)]


def size_of(value: Any) -> float:
    """Bytes from a number or a text; 0 if it is neither."""
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        base, power = 1024.0 if found[3] else 1000.0, _POWERS.index(found[2].lower())
        return float(found[1]) * base**power
    plain = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain else 0.0
