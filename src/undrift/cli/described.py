"""What a class or function says of itself: its docstring, its parameters and their ranges."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from undrift.config import Config, Range, UndriftError

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """A parameter of a class or function.

    default  REQUIRED where it must be given
    kind     its annotation, for those without a range
    tune     the range that `undrift tune` searches, "" for none
    """

    name: str
    default: Any
    kind: str
    range: Range | None
    tune: str = ""

    @property
    def values(self) -> str:
        """What it may be."""
        if self.range is None:
            return self.kind
        return f"{self.range}{', or None' * self.range.optional}"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        required = self.default is REQUIRED
        bounds = asdict(self.range) if self.range else {}
        return {
            "name": self.name,
            "required": required,
            "default": None if required else _plain(self.default),
            "values": self.values,
            "tune": self.tune or None,
            **{key: one for key, one in bounds.items() if key != "kind" and one not in (None, ())},
        }


@dataclass(frozen=True)
class Described:
    """A class or function; its description is its docstring without examples and reference."""

    name: str
    description: str
    reference: str
    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, name: str, thing: Callable[..., Any]) -> Described:
        doc = (inspect.getdoc(thing) or "").partition("\n>>>")[0]
        text, *reference = re.split(r"\nReferences?: ", doc, maxsplit=1)
        paper = " ".join("".join(reference).split())
        return cls(name, _joined(text.strip()), paper, _parameters(thing))

    @property
    def about(self) -> str:
        """The first line."""
        return self.description.partition("\n")[0]

    @property
    def signature(self) -> str:
        """All parameters, with those defaults that they have."""
        return ", ".join(
            one.name if one.default is REQUIRED else f"{one.name}={one.default!r}"
            for one in self.parameters
        )

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "about": self.about,
            "description": self.description,
            "parameters": [one.data() for one in self.parameters],
            "reference": self.reference or None,
        }


def _joined(text: str) -> str:
    """A text whose paragraphs are one line each; columns, and `Cost:` and its like, stay lines."""
    lines: list[str] = []
    before = ""
    for line in text.split("\n"):
        alone = re.search(r"\S {2,}\S|^\s|^\w+: ", line) or re.search(r"\S {2,}\S", before)
        if line and before and not alone:
            lines[-1] += f" {line}"
        else:
            lines.append(line)
        before = line
    return "\n".join(lines)


def _parameters(thing: Callable[..., Any]) -> tuple[Parameter, ...]:
    example = _example(thing)
    known = _metadata(example)
    found = []
    for one in inspect.signature(thing).parameters.values():
        if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            continue
        default = one.default
        if default is REQUIRED and not isinstance(example, type):
            default = getattr(example, one.name, REQUIRED)  # FedAvg() inside a part
        about = known.get(one.name, {})
        kind, tune = _kind(one), about.get("tune") or ""
        found.append(Parameter(one.name, default, kind, about.get("range"), tune))
    return tuple(found)


def _kind(parameter: inspect.Parameter) -> str:
    found = parameter.annotation
    if found is parameter.empty:
        return ""
    text = found if isinstance(found, str) else inspect.formatannotation(found)
    return re.sub(r"^Literal\[(.*)\]$", r"one of \1", text)


def _example(thing: Callable[..., Any]) -> Any:
    """What has the fields: a class, or what a function of ours makes by default."""
    ours = thing.__module__.startswith("undrift.") or hasattr(thing, "__wrapped__")
    if isinstance(thing, type) or not ours:
        return thing
    try:
        return thing()
    except (TypeError, UndriftError):  # it has parameters that must be given
        return inspect.unwrap(thing)


def _metadata(thing: Any) -> dict[str, Mapping[Any, Any]]:
    """What is known of the fields of a `Config`, and of those inside it that have other names."""
    if not is_dataclass(thing):
        return {}
    found: dict[str, Mapping[Any, Any]] = {}
    for field in fields(thing):
        inner = getattr(thing, field.name, None)
        if isinstance(inner, Config):
            found = _metadata(inner) | found
    return found | {one.name: one.metadata for one in fields(thing) if one.metadata}


def _plain(value: Any) -> Any:
    """A value for JSON, as text where it has no other form there."""
    simple = isinstance(value, str | bool | int) or value is None
    return value if simple or (isinstance(value, float) and math.isfinite(value)) else repr(value)
