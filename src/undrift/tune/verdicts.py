"""Verdicts: what the results of a study mean, in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undrift.report.estimate import Estimate
from undrift.report.score import Score
from undrift.tune.noise import by_seed, half_width, needed

if TYPE_CHECKING:
    from undrift.tune.outcome import Outcome
    from undrift.tune.running import Desk


def said(here: Desk, found: list[Outcome]) -> list[str]:
    """What the table means, in sentences."""
    if all(one.winner is None for one in found):
        return ["All trials failed; the ledger says why. Try smaller step sizes."]
    notes = [_how(here), *_validation(here, found)]
    if not here.study.final_seeds:
        return notes
    notes.append(
        f"Test results are those of {here.study.final_seeds} fresh seeds, run once; in brackets, "
        "95 % intervals by Student's t over seeds (from three on)."
    )
    for one in found:
        if one.winner is not None and one.tuned is not None and one.tuned == one.defaults:
            notes.append(f"{one.arm.label}: nothing better than its defaults was found.")
        elif one.gain is not None:
            name = f"tuned {one.arm.label}"
            notes.append(_verdict(here.score, "These seeds", name, "its defaults", one.gain))
    tested = [one for one in found if one.tuned is not None and one.tuned["test"]]
    tested.sort(key=lambda one: -here.score.rank(_mean(one.tuned)))
    for other in tested[1:]:
        first = tested[0]
        assert first.tuned is not None
        assert other.tuned is not None
        if gap := by_seed(first.tuned, other.tuned):
            names = (f"tuned {first.arm.label}", f"tuned {other.arm.label}")
            notes.append(_verdict(here.score, "These seeds", *names, gap))
    return notes


def _how(here: Desk) -> str:
    seeds = len(here.study.experiment.seeds)
    return (
        f"Settings were chosen by the {here.score.name} on {here.study.experiment.validation} "
        f"validation clients after {here.study.rungs[-1]} rounds, mean of {seeds} "
        f"seed{'s' * (seeds > 1)}; the test data had no part in it."
    )


def _validation(here: Desk, found: list[Outcome]) -> list[str]:
    """What the validation clients can tell, and how many could tell more."""
    known = [one.chosen for one in found if one.chosen and one.chosen.interval]
    if not known:
        return []
    score, clients = here.score, known[0].n
    halves = sorted(map(half_width, known))
    shown = dict.fromkeys(f"± {score.number(half)}" for half in (halves[0], halves[-1]))
    notes = [
        f"Brackets behind validation results are 95 % intervals over the {clients} validation "
        f"clients of all seeds: {' '.join(filter(None, [' to '.join(shown), score.gap]))}, with "
        f"{4 * clients} clients half of that. They tell nothing about other seeds, and the best of "
        "many trials is flattered by the clients that chose it. A trial is tied with the best if "
        "the interval of their difference, client by client, covers zero."
    ]
    for one in found:
        if one.lead is None or one.lead.interval is None:
            continue
        whose, name = f"The {one.lead.n} validation clients", f"tuned {one.arm.label}"
        more = needed(one.lead)
        hint = f" A difference like this takes about {more} clients." if more else ""
        told = _verdict(score, whose, name, "its defaults", one.lead)
        notes.append(told + (hint if "cannot tell" in told else ""))
    return notes


def _mean(result: dict[str, Any] | None) -> float:
    found = Estimate.of([v for v in (result or {"test": {}})["test"].values() if v is not None])
    return found.mean if found else math.nan


def _verdict(score: Score, whose: str, one: str, other: str, gap: Estimate) -> str:
    """Whether one is better than the other, from the interval of their difference."""
    ends = gap.interval
    shown = f"{score.number(gap.mean, '+')} {score.gap or score.name}"
    if ends is None:
        why = "without an interval; --final-seeds 3 or more give one"
        return f"{one[0].upper()}{one[1:]} against {other}: {shown}, {why}."
    shown += f" [{score.number(ends[0], '+')}, {score.number(ends[1], '+')}]"
    if ends[0] <= 0 <= ends[1]:
        return f"{whose} cannot tell {one} from {other}: {shown}."
    better = "better" if score.rank(gap.mean) > 0 else "worse"
    return f"{whose} find {one} {better} than {other}: {shown}."
