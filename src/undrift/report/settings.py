"""Settings of runs, compared parameter by parameter: what differs, under short names.

Runs hold settings as texts such as `Local(lr=0.03)`. They are parsed here, never evaluated: those
that name users' own code do not load it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from undrift.config import Config
from undrift.config.expressions import tree

Key = tuple[str, ...]
"""a setting, or a parameter inside it: ("local", "lr")"""

NOT_SETTINGS = {"name", "hash", "command", "version", "format"}
"""what may differ between two runs of one experiment"""

OTHERWISE = {
    *("algorithms", "seeds", "target"),
    *("clients", "train_samples", "test_samples", "checksum", "classes", "parameters", "groups"),
}
"""what is compared elsewhere, concerns the report only, or follows from settings and seeds"""

MEASURING = {"every", "all_clients", "all_updates", "fairness"}
"""settings that change what is measured, not what is trained"""

_BUILT_IN = {
    "algorithms": ("undrift.experiment.registry", "NAMES"),
    "data": ("undrift.data.sources", "SOURCES"),
    "model": ("undrift.models", "MODELS"),
    "partition": ("undrift.data.partition.partitions", "PARTITIONS"),
    "sampler": ("undrift.federation.sampling", "SAMPLERS"),
    "origin": ("undrift.experiment.origin", "Origin"),
    "local": ("undrift.training.work", "Local"),
}
"""setting → where its classes are, for the defaults of their parameters"""


@dataclass(frozen=True)
class Call:
    """An expression: a name, and parameters with their values; those without a name by place."""

    name: str
    parameters: tuple[tuple[str, Any], ...]

    @property
    def short(self) -> str:
        """The name without the file or module of users' own code."""
        return self.name.rpartition(":")[2]


def read_call(text: Any, kind: str) -> Call | None:
    """The expression in a text, with the defaults of its parameters; None if it is none."""
    return _parsed(text, kind) if isinstance(text, str) else None


@lru_cache(maxsize=4096)
def _parsed(text: str, kind: str) -> Call | None:
    try:
        body = tree(text.strip()).body
        return _call(body, kind) if isinstance(body, ast.Call) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _call(node: ast.Call, kind: str) -> Call:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    defaults = _defaults(kind, name)
    names = [*defaults, *map(str, range(len(defaults), len(node.args)))]
    given = {names[place]: _value(one, kind) for place, one in enumerate(node.args)}
    given |= {one.arg or "**": _value(one.value, kind) for one in node.keywords}
    return Call(name, tuple((defaults | given).items()))


def _value(node: ast.expr, kind: str) -> Any:
    if isinstance(node, ast.Call):
        return _call(node, kind)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return ast.unparse(node)


@cache
def _defaults(kind: str, name: str) -> dict[str, Any]:
    """Parameters of a class of ours with their defaults; none of other names."""
    make = _classes(kind).get(name)
    if make is None:
        return {}
    known = inspect.signature(make).parameters.values()
    found = {one.name: None if one.default is one.empty else one.default for one in known}
    for parameter, default in found.items():
        if isinstance(default, Config):
            found[parameter] = read_call(repr(default), kind)
    return found | {"epochs": 1.0} if kind == "local" else found


@cache
def _classes(kind: str) -> dict[str, Callable[..., Any]]:
    if kind not in _BUILT_IN:
        return {}
    module, name = _BUILT_IN[kind]
    found = getattr(import_module(module), name)
    many = found.values() if isinstance(found, dict) else [found]
    return {one.__name__: one for one in many}


def compared(experiments: Sequence[Mapping[str, Any]]) -> list[dict[Key, Any]]:
    """For each run, the settings that are not written alike in all, by parameter."""
    keys = dict.fromkeys(key for one in experiments for key in one)
    first = experiments[0]
    unlike = [key for key in keys if any(one.get(key) != first.get(key) for one in experiments)]
    edited = _edited(experiments)
    return [
        {
            key: value
            for key, value in spread({key: one.get(key) for key in unlike}).items()
            if key[0] != "code" or key in edited
        }
        for one in experiments
    ]


def _edited(experiments: Sequence[Mapping[str, Any]]) -> set[Key]:
    """Files of users' own code that are not the same in all runs that use them.

    A file that a run does not use is no difference beside the settings that name it.
    """
    known: dict[Key, set[str]] = {}
    for one in experiments:
        for key, checksum in _spread(("code",), one.get("code") or {}):
            known.setdefault(key, set()).add(str(checksum))
    return {key for key, checksums in known.items() if len(checksums) > 1}


def spread(experiment: Mapping[str, Any]) -> dict[Key, Any]:
    """All settings of a run, those in texts by parameter."""
    flat: dict[Key, Any] = {}
    for key, value in experiment.items():
        if key not in NOT_SETTINGS | OTHERWISE and value is not None:
            flat |= _spread((key,), read_call(value, key) or value)
    return flat


def _spread(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, Call):
        yield key, value.name
        for name, one in _given(value):
            yield from _spread((*key, name), one)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _spread((*key, str(name)), one)
    else:
        yield key, tuple(value) if isinstance(value, list) else value


def _given(call: Call) -> Iterator[tuple[str, Any]]:
    """The parameters that count: epochs do not where steps are given."""
    steps = call.name == "Local" and dict(call.parameters).get("steps") is not None
    for name, value in call.parameters:
        if value is not None and not (steps and name == "epochs"):
            yield name, value


def spelled(key: str, text: Any) -> Any:
    """The text of a setting with all defaults; other values as they are."""
    call = read_call(text, key)
    return text if call is None else _spelled(call, lambda path: True, full=True)


def contrast(texts: Sequence[str], kind: str = "algorithms") -> list[str]:
    """Short names of expressions: only the parameters in which those of one form differ.

    AdaBest(mu=0.02, beta=0.5) beside AdaBest(mu=0.02, beta=0.96) is AdaBest(beta=0.5).
    """
    calls = {text: read_call(text, kind) for text in texts}
    forms: dict[str, list[Call]] = {}
    for call in calls.values():
        if call is not None:
            forms.setdefault(_form(call), []).append(call)
    named = {}
    for text, call in calls.items():
        differing = set() if call is None else _differing(map(_flat, forms[_form(call)]))
        named[text] = text if call is None else _spelled(call, differing.__contains__)
    names = list(named.values())
    return [text if names.count(named[text]) > 1 else named[text] for text in texts]


def form(text: str, kind: str = "algorithms") -> str:
    """An expression without its values: texts of one form differ in these alone."""
    call = read_call(text, kind)
    return text if call is None else _form(call)


def _form(call: Call) -> str:
    inner = [_form(one) for _, one in call.parameters if isinstance(one, Call)]
    return f"{call.name}({', '.join(inner)})"


def _flat(call: Call) -> dict[Key, Any]:
    return dict(_spread((), call))


def _spelled(
    call: Call, keeps: Callable[[Key], bool], path: Key = (), *, full: bool = False
) -> str:
    shown = []
    for name, value in _given(call):
        if isinstance(value, Call):
            shown.append(_spelled(value, keeps, (*path, name), full=full))
        elif keeps((*path, name)):
            shown.append(_assigned(name, value))
    head = call.name if full else call.short
    return f"{head}({', '.join(shown)})" if shown or full else head


def _differing(flats: Iterable[Mapping[Key, Any]]) -> set[Key]:
    """The keys that have not the same value in all."""
    known = list(flats)
    keys = {key for flat in known for key in flat}
    return {key for key in keys if any(flat.get(key) != known[0].get(key) for flat in known)}


def plain(value: Any) -> str:
    """A value as users write it: 5 for 5.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _assigned(name: str, value: Any) -> str:
    return plain(value) if name.isdigit() else f"{name}={plain(value)}"


def differences(flats: Sequence[Mapping[Key, Any]]) -> list[list[str]]:
    """For each run, the settings in which it differs from others: ["lr=0.03", "Dirichlet"]."""
    flats = [dict(flat) | told for flat, told in zip(flats, _forks(flats), strict=True)]
    order = list(dict.fromkeys(key for flat in flats for key in flat))
    differing = _differing(flats)
    keys = [key for key in order if key in differing and key[:1] != ("origin",)]
    trained = [key for key in keys if key[0] not in MEASURING]
    told = [_told(flat, trained) for flat in flats]
    return told if _distinct(told) else [_told(flat, keys) for flat in flats]


def _forks(flats: Sequence[Mapping[Key, Any]]) -> list[dict[Key, str]]:
    """For each run, how it was forked: in as many words as set the forks apart."""
    forks = [[flat.get(("origin", one)) for one in ("algorithm", "round")] for flat in flats]
    sources = {str(source): "" for source, after in forks if after is not None}
    if len(sources) > 1:
        sources = dict(zip(sources, contrast(list(sources)), strict=True))
    return [
        {}
        if after is None
        else {
            ("fork",): f"forked {f'from {name} ' if (name := sources[str(source)]) else ''}"
            f"after round {after}"
        }
        for source, after in forks
    ]


def _distinct(told: Sequence[Sequence[str]]) -> bool:
    return len(set(map(tuple, told))) == len(told)


def _told(flat: Mapping[Key, Any], keys: Sequence[Key]) -> list[str]:
    """Values with the names of settings, which stay short where they are unambiguous."""
    ends = [key[-1] for key in keys]
    told = []
    for key in keys:
        if key not in flat or _goes_without_saying(flat, key, keys):
            continue
        value = flat[key]
        if key[0] == "code":
            told.append(f"{key[1].rpartition('/')[2]} {str(value)[:7]}")
        elif isinstance(value, str) and len(key) == 1:
            told.append(value.rpartition(":")[2].removesuffix("()"))
        else:
            name = key[-1] if ends.count(key[-1]) == 1 else ".".join(key)
            told.append(_assigned(name, value))
    return told


def _goes_without_saying(flat: Mapping[Key, Any], key: Key, keys: Sequence[Key]) -> bool:
    """Whether it is the default of a class that other runs do not have."""
    if len(key) != 2 or key[:1] not in keys:
        return False
    return bool(_defaults(key[0], str(flat[key[:1]])).get(key[1]) == flat[key])
