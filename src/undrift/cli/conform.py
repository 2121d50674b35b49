"""`undrift conform`: whether an implementation of a method, in any code base, is the method."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from undrift.config import UndriftError, own

STYLES = {"passes": "green", "deviates": "bold red", "fails": "bold red", "not applicable": "dim"}


def conform(
    adapter: str | None = None,
    *,
    method: str = "fedavg",
    tolerance: float | None = None,
    methods: Annotated[bool, Parameter(negative="")] = False,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """Compare an implementation of a method, in any code base, with the method itself.

    Example: undrift conform ./mine.py:Adapter --method scaffold

    An adapter is a class of about twenty lines with start(x0, clients) and round(cohort, batches,
    lr, epochs), which returns the model; `undrift new adapter Mine` writes one to start from. It is
    run on eleven small problems in float64 on which every number is known. For each it is said
    whether the result is right, and if not, the first round and quantity that deviate, the
    equation, and which known mistake, made in the reference, gives the same numbers. If anything
    deviates, the exit code is 1.

    Parameters
    ----------
    adapter
        The adapter's class: ./mine.py:Adapter or package.module:Adapter.
    method
        What it implements, such as fedprox, scaffold, "scaffold(option=1)" or
        "fedavg(weights='uniform')".
    tolerance
        Largest relative difference; the adapter's attribute `tolerance` if not given, or 1e-9.
    methods
        List the methods: what `start` must and may take, states, equations.
    json_
        Print JSON.
    """
    from undrift.checks.conform import conform as compare  # only now: it needs NumPy

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if methods:
        _list(json_, console)
        return
    found = own.REFERENCE.fullmatch(adapter.strip()) if adapter else None
    if found is None or not found["place"]:
        raise UndriftError(
            f"{adapter!r} is no adapter; give a class as ./mine.py:Adapter or module:Adapter "
            "(`undrift new adapter Mine` writes one)"
        )
    with own.blamed():
        report = compare(own.load(found["place"], found["name"]), method, tolerance=tolerance)
    if json_:
        shown = {"adapter": adapter} | report.to_dict()
        sys.stdout.write(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    else:
        for line in str(report).splitlines():
            text = Text(line)
            for outcome, style in STYLES.items():
                if line.startswith(outcome):
                    text.stylize(style, 0, len(outcome))
            console.print(text)
    if not report.ok:
        sys.exit(1)


def _list(as_json: bool, console: Console) -> None:
    """Print the methods."""
    from undrift.checks.conform import METHODS

    shown: dict[str, Any] = {
        name: {
            "settings": dict(rule.settings),
            "optional": dict(rule.optional),
            "states": rule.state_names(),
            "equations": dict(rule.equations),
        }
        for name, rule in METHODS.items()
    }
    if as_json:
        sys.stdout.write(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
        return
    for name, facts in shown.items():
        takes = ["x0", "clients", *facts["settings"], *(f"[{one}]" for one in facts["optional"])]
        console.print(f"{name:<11} start({', '.join(takes)})")
        for quantity, equation in facts["equations"].items():
            console.print(f"            {quantity:<4} {equation}")
