"""Schedule: which trial of an algorithm is run next, and how far.

Without halving there is one rung, all rounds. With it, the best third of the trials that reached a
rung goes on to the next (ASHA, Li et al., MLSys 2020, https://arxiv.org/abs/1810.05934).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from undrift.tune.store import Record
from undrift.tune.study import FACTOR

Job = tuple[Record, int]
"""a trial, and the rounds that it is to have"""


def ranked(records: Sequence[Record], rounds: int, lower: bool) -> list[Record]:
    """The trials with a result after these rounds, best first, failures last."""

    def worth(record: Record) -> tuple[bool, float, int]:
        objective = record.results[rounds].objective
        if objective is None:
            return True, 0.0, record.number
        return False, objective if lower else -objective, record.number

    return sorted((one for one in records if rounds in one.results), key=worth)


def next_job(
    records: Sequence[Record], rungs: Sequence[int], lower: bool, busy: Callable[[Record], bool]
) -> Job | None:
    """A trial that was begun and not finished, or that may go on; None if there is none."""
    for record in records:
        if not record.results and not busy(record):
            return record, rungs[0]
    for rung, further in reversed(list(pairwise(rungs))):
        there = ranked(records, rung, lower)
        for record in there[: len(there) // FACTOR]:
            if _may_go_on(record, rung, further) and not busy(record):
                return record, further
    return None


def last_job(records: Sequence[Record], rungs: Sequence[int], lower: bool) -> Job | None:
    """If no trial got to the end in good health: the best one below, one rung up."""
    if best(records, rungs, lower):
        return None
    for rung, further in reversed(list(pairwise(rungs))):
        for record in ranked(records, rung, lower):
            if _may_go_on(record, rung, further):
                return record, further
    return None


def best(records: Sequence[Record], rungs: Sequence[int], lower: bool) -> Record | None:
    """The best trial with all rounds; None if all failed."""
    sound = [r for r in ranked(records, rungs[-1], lower) if r.results[rungs[-1]].failure is None]
    return sound[0] if sound else None


def _may_go_on(record: Record, rung: int, further: int) -> bool:
    return record.results[rung].failure is None and further not in record.results
