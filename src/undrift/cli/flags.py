"""Flags that people type and that do not exist: what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from cyclopts import UnknownOptionError

from undrift.experiment.instead import instead


def told(error: UnknownOptionError, given: Sequence[str]) -> str:
    """The message for an unknown option, where `given` was typed."""
    typed = error.token.keyword or error.token.value
    flag, _, value = typed.partition("=")
    if not value and flag in given:
        value, *_ = [*given[given.index(flag) + 1 :], ""]
    command = (error.command_chain or ("",))[0]
    hint = None
    if command == "run":
        hint = instead(flag.lstrip("-"), value, _change) or _setting(flag, value)
    elif command in ("compare", "demo"):
        hint = instead(flag.lstrip("-"), value, _flag)
    return f"{flag} is not an option of undrift {command}; {hint}" if hint else str(error)


def _flag(setting: str, value: str) -> str:
    return f"--{setting.removeprefix('local.').replace('_', '-')} {_quoted(value)}"


def _change(setting: str, value: str) -> str:
    return f"--set {_quoted(f'{setting}={value}')}"


def _quoted(text: str) -> str:
    return f'"{text}"' if set(text) & set("([ ") else text


def _setting(flag: str, value: str) -> str | None:
    """How `undrift run` sets what is a flag of `undrift compare`."""
    from undrift.experiment.experiment import Experiment
    from undrift.training.work import Local

    name = flag.lstrip("-").replace("-", "_")
    if name in {field.name for field in fields(Local)}:
        name = f"local.{name}"
    elif name not in {field.name for field in fields(Experiment)}:
        return None
    if name == "seeds" and value.isdecimal():  # there, a number of them
        value = str([*range(int(value))])
    return f"write {_change(name, value or 'VALUE')}"
