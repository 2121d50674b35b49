"""`undrift check`: whether an algorithm obeys the laws."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from undrift.experiment.registry import algorithm as named

if TYPE_CHECKING:
    from undrift.checks.laws import LawResult


def check(algorithm: str, *, json_: Annotated[bool, Parameter("--json")] = False) -> None:
    """Check an algorithm, yours or ours, against the laws that every algorithm must obey.

    Example: undrift check "./mine.py:Half(rate=0.3)"

    Every law is printed when it was checked. If one is broken, the exit code is 1. The first time,
    the fast engine is compiled, once for each version of torch, which takes about half a minute to
    a minute; later checks take seconds.

    Parameters
    ----------
    algorithm
        The algorithm, such as ./mine.py:Half, package.module:Half or adabest; a part is checked
        around FedAvg.
    json_
        Print JSON.
    """
    made = named(algorithm)

    from undrift.checks.laws import check_laws  # only now, since this takes seconds

    console = Console(highlight=False, markup=False, quiet=json_)
    console.print(f"{made!r}, law by law:")
    results: list[LawResult] = []
    for result in check_laws(made):
        told = any(result.failure == one.failure for one in results)
        console.print(_line(result, told, console.width))
        results.append(result)
    broken = [result.law for result in results if result.failure is not None]
    if json_:
        shown = {"algorithm": repr(made), "laws": [asdict(result) for result in results]}
        sys.stdout.write(json.dumps(shown, indent=1) + "\n")
    console.print(f"broken: {', '.join(broken)}" if broken else f"all {len(results)} laws hold")
    if broken:
        sys.exit(1)


def _line(result: LawResult, told: bool, width: int) -> Text:
    """The law, in columns; a failure that was told before is not told again."""
    state, style, about = "holds", "green", result.says
    if result.failure is not None:
        state, style = "broken", "bold red"
        about += f" {'As above.' if told else result.failure}"
    text = textwrap.fill(
        about,
        max(width, 60),
        initial_indent=f"{state:<8}{result.law:<13}",
        subsequent_indent=" " * 21,
    )
    line = Text(text)
    line.stylize(style, 0, len(state))
    return line
