"""Labels: short names of algorithms and runs that say in what they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from undrift.report.settings import compared, contrast, differences, form, read_call

if TYPE_CHECKING:
    from undrift.report.read import Run

LISTED = 6
"""most algorithms that a title names"""

MOST = 4
"""settings that a label names; runs that differ in more are told apart by their names"""


def short_names(known: Mapping[str, str]) -> dict[str, str]:
    """Algorithm → label, from the labels that runs hold, where those are distinct and short.

    Algorithms of one form are labelled by the parameters in which they differ.
    """
    heads = {name.partition("(")[0] for name in known}
    if len(heads) == len(set(known.values()) - set(known)) == len(known):
        return dict(known)
    forms = [form(name) for name in known]
    brief = dict(zip(known, contrast(list(known)), strict=True))
    labels = {
        name: label if label != name and forms.count(kind) == 1 else brief[name]
        for (name, label), kind in zip(known.items(), forms, strict=True)
    }
    for fallback in (brief, {name: name for name in known}):
        taken = list(labels.values())
        labels = {n: fallback[n] if taken.count(one) > 1 else one for n, one in labels.items()}
    return labels


def suffixes(told: Sequence[Sequence[str]], runs: Sequence[str]) -> list[str]:
    """What labels of each run end with: its settings, or its name if too many settings differ."""
    if max(map(len, told)) > MOST:
        return [f" · {run}" for run in runs]
    return ["".join(f", {one}" for one in said) for said in told]


def descriptions(runs: Sequence[Run]) -> list[str]:
    """Data and algorithms of each run, and in what it differs from others with the same ones."""
    whats = [_what(run) for run in runs]
    for what in set(whats):
        places = [place for place, one in enumerate(whats) if one == what]
        flats = compared([runs[place].experiment for place in places])
        seeds = [f"seeds {', '.join(map(str, runs[place].seeds))}" for place in places]
        if len(set(seeds)) > 1:
            flats = [flat | {("seeds",): said} for flat, said in zip(flats, seeds, strict=True)]
        for place, told in zip(places, differences(flats), strict=True):
            whats[place] = "; ".join([what, *told])
    return whats


def title(run: Run) -> str:
    """The name of a run; of several, their data and algorithms."""
    if not run.merged and not run.pooled:
        return run.name
    data = dict.fromkeys(data_name(one.experiment.get("data", "")) for one in run.members)
    names = list(dict.fromkeys(arm.short for arm in run.arms))
    algorithms = ", ".join(names) if len(names) <= LISTED else f"{len(names)} algorithms"
    return f"{', '.join(data)}: {algorithms}".removeprefix(": ")


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs in the order of the settings in which they differ, if labels name these."""
    told = differences(compared([run.experiment for run in runs]))
    if len(runs) < 2 or max(map(len, told)) > MOST:
        return list(runs)
    places = sorted(range(len(runs)), key=lambda place: [_natural(one) for one in told[place]])
    return [runs[place] for place in places]


def _natural(text: str) -> list[tuple[float, str]]:
    """A key to sort texts by, in which numbers count as such."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text)
    return [(float(part), "") if place % 2 else (0.0, part) for place, part in enumerate(parts)]


def _what(run: Run) -> str:
    fork = run.arms[0].fork
    names = ", ".join(arm.label for arm in run.arms)
    what = fork.said(*(arm.name for arm in run.arms)) if fork else names
    return f"{data_name(run.experiment.get('data', ''))}: {what}".removeprefix(": ")


def data_name(text: object) -> str:
    """Data in a word: the name of its file or folder if it has one, without the other settings."""
    call = read_call(text, "")  # as it is written, without defaults
    path = dict(call.parameters).get("path") if call else None
    return PurePath(path).name if isinstance(path, str) else str(text).removesuffix("()")


def code_lines(code: Mapping[str, object]) -> list[str]:
    """The files of users' own code, with the beginnings of their checksums."""
    return [f"{file} {str(checksum)[:6]}…" for file, checksum in code.items()]
