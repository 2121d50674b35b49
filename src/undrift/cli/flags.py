"""Flags that people type and that do not exist: what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from cyclopts import UnknownOptionError

from undrift.runs.layout import RunFile


def told(error: UnknownOptionError, given: Sequence[str]) -> str:
    """The message for an unknown option, where `given` was typed."""
    command = (error.command_chain or ("",))[0]
    if command not in ("compare", "demo", "run", "tune", "sweep", "extend", "resume", "cost"):
        return str(error)

    from undrift.experiment.unknown_settings import instead  # not for help and the like

    flag, _, value = (error.token.keyword or error.token.value).partition("=")
    if not value and flag in given:
        value, *_ = [*given[given.index(flag) + 1 :], ""]
    name = flag.lstrip("-")
    hint: str | None
    if command == "cost":
        hint = _SIZE if name in ("model", "data") else None
    elif command == "resume" and name in GROWS:
        hint = f"`undrift extend RUN {flag} {value}` lets a run grow"
    elif command in ("run", "extend", "resume"):
        hint = instead(name, value, _change) or _setting(name, value)
        if hint and hint.startswith("write ") and command != "run":
            change = hint.removeprefix("write ")
            hint = f"`undrift run RUN/{RunFile.SETTINGS} {change}` begins another run"
    else:
        hint = instead(name, value, _flag)
    return f"{flag} is not an option of undrift {command}; {hint}" if hint else str(error)


GROWS = ("seeds", "rounds", "algorithm")
"""options of `undrift extend`"""

_SIZE = (
    "its tables hold for every model; --parameters N adds bytes for one of that size, which"
    " `undrift show RUN` tells"
)


def _flag(setting: str, value: str) -> str:
    return f"--{setting.removeprefix('local.').replace('_', '-')} {_quoted(value)}"


def _change(setting: str, value: str) -> str:
    return f"--set {_quoted(f'{setting}={value}')}"


def _quoted(text: str) -> str:
    return f'"{text}"' if set(text) & set("([ ") else text


def _setting(name: str, value: str) -> str | None:
    """How `undrift run` sets what is a flag of `undrift compare`."""
    from undrift.experiment.experiment import Experiment
    from undrift.training.work import Local

    name = name.replace("-", "_")
    if name in {field.name for field in fields(Local)}:
        name = f"local.{name}"
    elif name not in {field.name for field in fields(Experiment)}:
        return None
    if name == "seeds" and value.isdecimal():  # there, a number of them
        value = str([*range(int(value))])
    return f"write {_change(name, value or 'VALUE')}"
