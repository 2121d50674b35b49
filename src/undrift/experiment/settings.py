"""Reads, changes and writes the settings of an experiment as a TOML file.

Every error is one sentence that begins with the line, or with the change, that caused it.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from undrift.config import Config, UndriftError, at, shortened, unknown
from undrift.config.expressions import parse
from undrift.data.partition.partitions import PARTITIONS
from undrift.data.source import DataSet
from undrift.experiment.toml import Place, find_keys
from undrift.experiment.unknown_settings import as_toml, instead
from undrift.federation.sampling import SAMPLERS
from undrift.models import MODELS, OwnModel
from undrift.training.losses import OwnLoss, loss
from undrift.training.work import Local


def _data(text: str) -> DataSet:
    from undrift.data.sources import dataset

    return dataset(text)


def _own_data(own: Callable[..., Any]) -> Callable[..., Any]:
    from undrift.data.own import OwnData

    return OwnData.adapt(own)


TEXTS: dict[str, Callable[[str], Config | DataSet | str]] = {
    "data": _data,
    "partition": lambda text: parse(text, PARTITIONS, "partition"),
    "model": lambda text: parse(text, MODELS, "model", adapt=OwnModel.adapt),
    "loss": loss,
    "local": lambda text: parse(text, {"Local": Local}, "local work"),
    "sampler": lambda text: parse(text, SAMPLERS, "sampler"),
}
"""Setting → function that makes its object from text."""

OWN: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "data": _own_data,
    "model": OwnModel.adapt,
    "loss": OwnLoss.adapt,
}
"""what users' own classes and functions become"""

EXPECTED = {
    "data": 'a text such as "digits"',
    "partition": 'a text such as "Dirichlet(clients=100, alpha=0.1)"',
    "model": 'a text such as "mlp" or "./nets.py:Net"',
    "loss": 'a text such as "cross_entropy" or "./nets.py:huber"',
    "local": 'a table with lr, epochs, batch_size ..., or a text such as "Local(lr=0.1)"',
    "sampler": 'a text such as "Uniform(5)"',
}

T = TypeVar("T")

WIDTH = 100
LARGEST = 2**63 - 1  # TOML guarantees 64-bit integers only
TOO_LARGE = f"a number is larger than {LARGEST}, the largest that TOML has"


def named(name: str, value: Any) -> Any:
    """The object of a setting, from text (or a table, for `local`); objects stay as they are."""
    with at(name):
        if isinstance(value, str):
            return TEXTS[name](value)
        if callable(value) and name in OWN:
            if not hasattr(value, "__qualname__"):
                kind = type(value).__name__
                raise UndriftError(f"{name}: give the class {kind} itself, or a function")
            return OWN[name](value)()
        if name == "local" and isinstance(value, dict):
            _known("setting of local", value, [field.name for field in fields(Local)])
            return Local(**value)
        if not isinstance(value, Config | DataSet):
            raise UndriftError(f"{name}={shortened(value)}: must be {EXPECTED[name]}")
    return value


class SettingsFile:
    """The settings in a TOML file, with changes, and where each of them was given.

    values   name → value, as for a constructor
    changes  place of a changed setting → name of the change in error messages
    """

    def __init__(self, path: str | Path, known: Mapping[str, bool]) -> None:
        """known: setting → whether it is required."""
        self.path, self.known = path, known
        self.changes: dict[Place, str] = {}
        self.text, self.values = _read(path)
        with self.blame():
            _refuse_huge(self.values)
            _known("setting", self.values, known)
            self._refuse_swallowed()

    def _refuse_swallowed(self) -> None:
        """Raise for a setting below a table's header, which TOML makes part of the table."""
        for table, content in self.values.items():
            for name in content if isinstance(content, dict) else ():
                if name in self.known:
                    with at(table, name):
                        raise UndriftError(f"{name} is inside [{table}]; move it above [{table}]")

    def change(self, changes: Mapping[str, Any], flag: str = "") -> None:
        """Replace settings by name, `{"rounds": 20, "local.lr": 0.05}`; None removes one."""
        parts: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            name, _, part = key.partition(".")
            if part:
                parts.setdefault(name, {})[part] = value
                continue
            self._called(flag, value, name)
            with self.blame():
                _known("setting", {name: value}, self.known)
                _refuse_huge(value, name)
            self.values[name] = value
        for name, new in parts.items():
            self._change_parts(name, new, flag)

    def _change_parts(self, name: str, new: dict[str, Any], flag: str) -> None:
        """Replace fields of one object, in one step as some exclude each other."""
        old: Any = None
        if name in TEXTS and name in self.values:
            with self.blame():  # before changes are registered: an error here is the file's
                old = named(name, self.values[name])
        for part, value in new.items():
            self._called(flag, value, name, part)
        with self.blame():
            with at(name, next(iter(new))):
                if name not in self.known:
                    raise UndriftError(unknown("setting", name, self.known))
                if not hasattr(old, "__dataclass_fields__"):
                    raise UndriftError(f"{name} cannot be changed in part; give {name}=...")
            with at(name):
                _known(f"setting of {type(old).__name__}", new, [f.name for f in fields(old)])
                _refuse_huge(new)
                self.values[name] = replace(old, **new)

    def _called(self, flag: str, value: Any, *place: str) -> None:
        """Register a change, with its name in error messages."""
        shown = value if isinstance(value, str) else shortened(value)
        self.changes[place] = " ".join(f"{flag}{'.'.join(place)}={shown}".split())

    def build(self, make: Callable[..., T]) -> T:
        """Call `make` with the settings; raises if a required one is missing."""
        given = {name: value for name, value in self.values.items() if value is not None}
        missing = [name for name, must in self.known.items() if must and name not in given]
        if missing:
            raise UndriftError(
                f"{self.path}: {', '.join(missing)} must be given; "
                "`undrift compare fedavg --dry-run` prints a complete file"
            )
        with self.blame():
            return make(**given)

    @contextlib.contextmanager
    def blame(self) -> Iterator[None]:
        """Errors inside the block begin with the line or change that caused them."""
        try:
            yield
        except UndriftError as error:
            raise UndriftError(f"{self._where(error.places)}: {error}") from None
        except RecursionError:
            raise UndriftError(f"{self.path}: values are nested too deeply") from None

    def _where(self, places: tuple[Place, ...]) -> str:
        lines: set[int] = set()
        changes: dict[str, None] = {}  # in order, each once
        for place in places:
            outwards = [place[:depth] for depth in range(len(place), 0, -1)]
            inside = [one for one in self.changes if one[: len(place)] == place]
            if changed := [one for one in outwards if one in self.changes] or inside:
                changes |= {self.changes[one]: None for one in changed}
            elif found := [self._lines[one] for one in outwards if one in self._lines]:
                lines.add(found[0])
        file = str(self.path)
        if lines:
            file += f", line{'s' * (len(lines) > 1)} {' and '.join(map(str, sorted(lines)))}"
        return " and ".join([file, *changes] if lines or not changes else changes)

    @cached_property
    def _lines(self) -> dict[Place, int]:
        """Place of a key → its first line in the file."""
        lines: dict[Place, int] = {}
        for place, line in find_keys(self.text):
            for depth in range(1, len(place) + 1):
                lines.setdefault(place[:depth], line)
        return lines


def read_change(text: str) -> tuple[str, Any]:
    """The name and value in `local.lr=0.05`; a value that is not TOML is taken as text."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not name or not equals:
        raise UndriftError(f"--set {text}: write NAME=VALUE, such as local.lr=0.05")
    if value == "None":
        return name, None
    with contextlib.suppress(ValueError, RecursionError):
        content = tomllib.loads(f"value = {value}")
        if content.keys() == {"value"}:
            return name, content["value"]
    return name, value


def write(settings: Mapping[str, Any]) -> str:
    """Settings as TOML, with tables last and without those that are None."""
    given = {name: value for name, value in settings.items() if value is not None}
    lines = [_line(name, one) for name, one in given.items() if not isinstance(one, dict)]
    for name, table in given.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]"]
            lines += [_line(key, one) for key, one in table.items() if one is not None]
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any) -> str:
    line = f"{name} = {_literal(value)}"
    if isinstance(value, list) and len(line) > WIDTH:
        return "\n".join([f"{name} = [", *(f"    {_literal(one)}," for one in value), "]"])
    return line


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _read(path: str | Path) -> tuple[str, dict[str, Any]]:
    """The text of a file, and the settings in it."""
    text = ""
    try:
        text = Path(path).read_bytes().decode().replace("\r\n", "\n")
        return text, tomllib.loads(text)
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        reason = f"{path}, line {line}: this is not text in UTF-8"
    except RecursionError:
        reason = f"{path}: values are nested too deeply"
    except tomllib.TOMLDecodeError as error:
        reason = f"{path}{_not_toml(text, str(error))}"
    except ValueError:  # from `int`: Python does not parse numbers of more than 4300 digits
        digits = re.search(r"\d[\d_]{4299,}", text)
        line = text.count("\n", 0, digits.start() if digits else 0) + 1
        reason = f"{path}, line {line}: {TOO_LARGE}"
    raise UndriftError(reason)


def _not_toml(text: str, message: str) -> str:
    """Where and why a text is not valid TOML."""
    reason, line, column = re.fullmatch(  # type: ignore[union-attr]
        r"(.*?)(?: \(at (?:line (\d+), column (\d+)|end of document)\))?", message, re.DOTALL
    ).groups()
    if line is None:
        return f", at its end: not valid TOML: {reason}"
    lines = text.split("\n")
    before = "\n".join([*lines[: int(line) - 1], lines[int(line) - 1][: int(column) - 1]])
    if reason == "Invalid value":
        found = lines[int(line) - 1][int(column) - 1 :].split("#")[0].strip()
        reason = "a value is missing"
        if found:
            reason = (
                f"{shortened(found)} is not a value; write text in quotes, true and false in "
                "lower case"
            )
    elif reason.startswith("Cannot"):
        first: dict[Place, int] = {}
        for place, number in find_keys(before):
            if place in first:
                name = ".".join(map(str, place))
                return f", line {number}: {name} is given twice, first on line {first[place]}"
            first[place] = number
    return f", line {line}, column {column}: not valid TOML: {reason}"


def _known(kind: str, given: Mapping[str, Any], known: Any) -> None:
    """Raise for the first unknown name."""
    local = [field.name for field in fields(Local)]
    for name, value in given.items():
        if name not in known:
            with at(name):
                if kind == "setting" and name in local:
                    raise UndriftError(f"{name} belongs to [local]; write local.{name}")
                hint = instead(name, str(value), as_toml)
                if hint and kind.lower() in ("setting", "setting of local"):
                    raise UndriftError(f"no {kind} is called {name!r}; {hint}")
                raise UndriftError(unknown(kind, name, known))


def _refuse_huge(value: Any, *place: str | int) -> None:
    """Raise for integers of more than 64 bits, which Python has and TOML does not."""
    if isinstance(value, int) and abs(value) > LARGEST:
        with at(*place):
            raise UndriftError(TOO_LARGE)
    inside = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inside:
        _refuse_huge(one, *place, key)
