"""`conform`: whether an implementation of a method, in any code base, is the method."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np

from undrift.checks.conform.frame import Rule
from undrift.checks.conform.guess import Evidence, gap, guesses, pairs
from undrift.checks.conform.probes import PROBES, Make, Probe
from undrift.checks.conform.problem import Adapter, Quadratic, Record, Scenario, play
from undrift.checks.conform.report import Finding, Guess, NonConforming, Report
from undrift.checks.conform.rules import METHODS
from undrift.checks.conform.rules import method as named
from undrift.config import UndriftError, unknown

__all__ = [
    "METHODS",
    "PROBES",
    "Adapter",
    "Finding",
    "Guess",
    "NonConforming",
    "Probe",
    "Quadratic",
    "Report",
    "conform",
]

TOLERANCE = 1e-9


def conform(
    adapter: Any,
    method: str = "fedavg",
    *,
    tolerance: float | None = None,
    probes: Sequence[str] | None = None,
) -> Report:
    """Compare an implementation with the method, probe by probe.

    adapter    a class (or a function that makes an object) with the methods of `Adapter`
    method     such as "scaffold", "scaffold(option=1)" or "fedavg(weights='uniform')"
    tolerance  largest relative difference; the adapter's `tolerance` if not given, or 1e-9
    probes     names of the probes; all if not given

    In a test, `undrift.conform(MyAdapter, "scaffold").check()` raises with the whole table.
    """
    rule = named(method)
    make: Make = adapter if callable(adapter) else lambda: adapter
    example = make()
    settings = _settings(example, rule, method)
    limit = float(getattr(example, "tolerance", TOLERANCE) if tolerance is None else tolerance)
    findings: list[Finding] = []
    evidence: list[Evidence] = []
    for name in probes or PROBES:
        if name not in PROBES:
            raise UndriftError(unknown("probe", name, PROBES))
        findings.append(_ask(name, rule, make, settings, limit, evidence))
    deviating = [one.probe for one in findings if one.outcome == "deviates"]
    likely = guesses(rule, evidence, deviating, limit) if deviating else []
    return Report(method, settings, limit, tuple(findings), tuple(likely))


def _settings(adapter: Adapter, rule: type[Rule], method: str) -> dict[str, float]:
    """The settings that the adapter's `start` takes."""
    for name in ("start", "round"):
        if not callable(getattr(adapter, name, None)):
            raise UndriftError(f"{_name(adapter)} has no method {name!r}; an adapter needs it")
    taken = inspect.signature(adapter.start).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return {**rule.settings, **rule.optional}
    if missing := [name for name in rule.settings if name not in taken]:
        needed = ", ".join(["self", "x0", "clients", *rule.settings])
        raise UndriftError(
            f"{_name(adapter)}.start does not take {', '.join(missing)}, which {method} needs; "
            f"write def start({needed})"
        )
    return {**rule.settings, **{k: v for k, v in rule.optional.items() if k in taken}}


def _ask(
    name: str,
    rule: type[Rule],
    make: Make,
    settings: Mapping[str, float],
    limit: float,
    evidence: list[Evidence],
) -> Finding:
    """One probe; what the adapter played joins the evidence."""
    probe = PROBES[name]
    scenario = probe.scenario(rule, settings)

    def finding(outcome: Any, **more: Any) -> Finding:
        return Finding(name, probe.says, outcome, **more)

    if scenario is None:
        return finding("not applicable", note="The method has no such case.")
    if scenario.dropped and "dropped" not in inspect.signature(make().round).parameters:
        return finding("not applicable", note="The adapter's round() does not take `dropped`.")
    if probe.states and not rule.state_names():
        return finding("not applicable", note="The method has none.")
    if probe.states and not hasattr(make(), "states"):
        return finding("not applicable", note="The adapter has no states().")
    scenarios = [scenario, *([probe.against(rule, scenario)] if probe.against else [])]
    try:
        played = [list(play(make(), one)) for one in scenarios]
    except NotImplementedError as error:
        return finding("not applicable", note=str(error) or "The adapter says so.")
    except Exception as error:  # whatever somebody's code may raise
        return finding("fails", note=_told(error))
    _require_shapes(make(), rule, scenario, played[0])
    evidence += [(name, *pair) for pair in zip(scenarios, played, strict=True)]
    if probe.against:
        expected = [Record(probe.back(rule, record.x)) for record in played[1]]
    else:
        expected = list(play(probe.reference(rule)(), scenario))
    for t, (found, wanted) in enumerate(zip(played[0], expected, strict=True), 1):
        for quantity, a, b in pairs(found, wanted, probe.states):
            if not np.isfinite(a).all() or gap(a, b) > limit:
                key = quantity.partition(" ")[0]
                return finding(
                    "deviates",
                    round=t,
                    quantity=quantity,
                    equation=rule.equations[key],
                    expected=b.tolist(),
                    found=a.tolist(),
                    gap=gap(a, b),
                )
    return finding("passes")


def _require_shapes(
    adapter: Adapter, rule: type[Rule], scenario: Scenario, played: list[Record]
) -> None:
    """Raise if the adapter returns something else than what was asked for."""
    for record in played:
        if record.x.shape != scenario.x0.shape:
            raise UndriftError(
                f"{_name(adapter)}.round returned {record.x.size} numbers; the model has "
                f"{scenario.x0.size}"
            )
        for name in record.states:
            if name not in rule.state_names():
                raise UndriftError(
                    f"{_name(adapter)}.states: " + unknown("state", name, rule.state_names())
                )


def _told(error: Exception) -> str:
    last = extract_tb(error.__traceback__)[-1]
    reason, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__} in line {last.lineno} of {Path(last.filename).name}: {reason}"


def _name(adapter: Any) -> str:
    return type(adapter).__name__
