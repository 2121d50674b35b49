"""Knobs: settings of an experiment with one algorithm, by names that follow its composition.

`AdaBest.mu` is a field of the algorithm, whatever is around it; `ServerOpt.Adam.lr` that of an
optimiser, `local.lr` and `sampler.clients` are the experiment's. Outer names may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from undrift.config import Config, UndriftError, unknown
from undrift.core import Algorithm
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import label
from undrift.optim import Optimiser
from undrift.parts import ServerOpt
from undrift.tune.space import Plain, Space, space

SHARED = ("local", "sampler")
"""settings of the experiment, beside its algorithm, that have knobs"""


@dataclass(frozen=True)
class Knob:
    """One setting that a search turns.

    name   as it is shown: `AdaBest.mu`
    place  field names from the experiment inwards; the algorithm is called "algorithm"
    """

    name: str
    place: tuple[str, ...]
    space: Space


@dataclass(frozen=True)
class _Field:
    """A field of a part of the experiment, with the classes around it, and its default space."""

    classes: tuple[str, ...]
    place: tuple[str, ...]
    tune: str | None

    @property
    def name(self) -> str:
        return self.place[-1]


def knobs(experiment: Experiment, over: Mapping[str, Any]) -> tuple[Knob, ...]:
    """The knobs of an experiment's one algorithm: those named, or those with a default range.

    Names that belong to none of its parts are left out (`refuse_unknown` tells).
    """
    known = list(_fields(experiment))
    if not over:
        found = [(one, space(one.tune)) for one in known if one.tune]
    else:
        chosen = ((_find(experiment, known, name), given) for name, given in over.items())
        found = [(one, space(given)) for one, given in chosen if one]
    made = [Knob(_shown(one, known), one.place, values) for one, values in found]
    if len({knob.place for knob in made}) < len(made):
        raise UndriftError(f"a setting is named twice among {', '.join(over)}")
    for knob in made:
        for value in knob.space.ends:
            try:
                turned(experiment, {knob.name: value}, [knob])
            except UndriftError as error:
                raise UndriftError(f"{knob.name}={knob.space}: {error}") from None
    return tuple(sorted(made, key=lambda knob: knob.place[0] == "algorithm"))


def refuse_unknown(experiments: Sequence[Experiment], over: Mapping[str, Any]) -> None:
    """Raise for a name that none of the algorithms has."""
    fields_of = [(one, list(_fields(one))) for one in experiments]
    for name in over:
        if not any(_find(one, known, name) for one, known in fields_of):
            every = {_shown(field, known) for _, known in fields_of for field in known}
            raise UndriftError(unknown("setting", name, every))


def value(experiment: Experiment, knob: Knob) -> Any:
    """What a knob is set to."""
    first, *rest = knob.place
    found: Any = experiment.algorithms[0] if first == "algorithm" else getattr(experiment, first)
    for name in rest:
        found = getattr(found, name)
    return found


def turned(
    experiment: Experiment, settings: Mapping[str, Plain], knobs: Iterable[Knob]
) -> Experiment:
    """The experiment with knobs set to other values, those of one object in one step."""
    changes: dict[str, Any] = {}
    for knob in knobs:
        if knob.name in settings:
            inside = changes
            for name in knob.place[:-1]:
                inside = inside.setdefault(name, {})
            inside[knob.place[-1]] = settings[knob.name]
    new = {
        name: _changed(experiment.algorithms[0] if name == "algorithm" else
                       getattr(experiment, name), inner)
        for name, inner in changes.items()
    }  # fmt: skip
    if "algorithm" in new:
        new["algorithms"] = (new.pop("algorithm"),)
    return replace(experiment, **new)


def _changed(old: Any, changes: Mapping[str, Any]) -> Any:
    """An object with some of its fields changed, and those of the objects in it."""
    new = {
        name: _changed(getattr(old, name), one) if isinstance(one, dict) else one
        for name, one in changes.items()
    }
    return replace(old, **new)


def _fields(experiment: Experiment) -> Iterator[_Field]:
    for name in SHARED:
        for field in fields(getattr(experiment, name)):
            yield _Field((name,), (name, field.name), field.metadata.get("tune"))
    yield from _inside(experiment.algorithms[0], (), ("algorithm",))


def _inside(
    made: Config, outer: tuple[str, ...], place: tuple[str, ...], owner: object = None
) -> Iterator[_Field]:
    """The fields of an algorithm, a part or an optimiser, and of those in it."""
    classes = (*outer, type(made).__name__)
    for field in fields(made):  # type: ignore[arg-type]
        inner, here = getattr(made, field.name), (*place, field.name)
        if isinstance(inner, Algorithm | Optimiser) and is_dataclass(inner):
            yield from _inside(inner, classes, here, made)
            continue
        tune = field.metadata.get("tune")
        if isinstance(made, Optimiser) and field.name == "lr" and not isinstance(owner, ServerOpt):
            tune = None  # there it is a factor of the local step size, which is tuned itself
        if isinstance(inner, str):  # a word such as "auto", which says that nothing is to be tuned
            tune = None
        yield _Field(classes, here, tune)


def _find(experiment: Experiment, known: list[_Field], name: str) -> _Field | None:
    """The field that a name stands for; None if there is none."""
    *outer, last = name.strip().split(".")
    names = [one.lower() for one in outer]
    same = [one for one in known if one.name == last]
    found = [one for one in same if names and _within(names, [c.lower() for c in one.classes])]
    if not found and names == [label(experiment.algorithms[0]).lower()]:  # such as FedAdam.lr
        found = [one for one in same if one.place[0] == "algorithm"]
    if len(found) > 1:
        several = " or ".join(".".join([*one.classes, last]) for one in found)
        raise UndriftError(f"{name!r} may be {several} of {experiment.algorithms[0]!r}; say which")
    return found[0] if found else None


def _within(names: list[str], classes: list[str]) -> bool:
    """Whether names are among the classes around a field, in order, the innermost one included."""
    rest = iter(classes)
    return names[-1] == classes[-1] and all(name in rest for name in names)


def _shown(one: _Field, known: list[_Field]) -> str:
    """The shortest unique name."""
    for depth in range(len(one.classes) - 1, -1, -1):
        short = (one.classes[depth:], one.name)
        if [(f.classes[-len(short[0]):], f.name) for f in known].count(short) == 1:  # fmt: skip
            return ".".join([*short[0], one.name])
    return ".".join([*one.classes, one.name])
