"""Frozen, validated settings that print as the text that makes them.

Algorithms, optimisers, samplers and partitions are `Config`s: dataclasses whose constructor checks
every field, and whose `repr` is read back by `undrift.config.expressions.parse`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from undrift.config.errors import UndriftError, shortened
from undrift.config.own import reference

Check = Callable[[Any], Any]
"""Returns the value, converted if necessary; raises ValueError that says what it must be."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that a field takes, in its metadata as "range"; `str` completes "must be ...".

    kind            what they are, such as "a number"
    ge, gt, le, lt  bounds of numbers
    choices         all values, where they are few
    word            a text that stands for a number
    optional        whether None is one too
    """

    kind: str
    _: dataclasses.KW_ONLY
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[Any, ...] = ()
    word: str | None = None
    optional: bool = False

    def __str__(self) -> str:
        bounds = ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
        texts = [f"{sign} {bound:g}" for sign, bound in bounds if bound is not None]
        text = " ".join([self.kind, " and ".join(texts)]).strip()
        return f"{text}, or {self.word!r}" if self.word else text

    def __contains__(self, value: float) -> bool:
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


def real(
    default: Any = dataclasses.MISSING,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    infinite: bool = False,
    optional: bool = False,
    word: str | None = None,
    tune: str | None = None,
) -> Any:
    """A float field in a range, finite unless `infinite`, or a `word`; ints are converted.

    tune  the range that `undrift tune` searches by default, such as "log(0.01, 1)"
    """
    allowed = Range("a number", ge=ge, gt=gt, le=le, lt=lt, word=word, optional=optional)

    def check(value: Any) -> Any:
        if word is not None and value == word:
            return value
        must = f"must be {allowed}"
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(must)
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"{must}, and not this large") from None
        if math.isnan(number) or number not in allowed:
            raise ValueError(must)
        if math.isinf(number) and not infinite:
            raise ValueError(f"{must}, and finite")
        return number

    return _field(default, check, allowed, tune)


def whole(
    default: Any = dataclasses.MISSING,
    *,
    ge: int | None = None,
    le: int | None = None,
    optional: bool = False,
    tune: str | None = None,
) -> Any:
    """An int field in a range; `tune` as for `real`, such as "int(8, 64)"."""
    allowed = Range("a whole number", ge=ge, le=le, optional=optional)

    def check(value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool)
        if not number or value not in allowed:
            raise ValueError(f"must be {allowed}")
        return value

    return _field(default, check, allowed, tune)


def wholes(default: tuple[int, ...], *, ge: int | None = None) -> Any:
    """A field for a tuple of ints, each with a lower bound."""
    allowed = Range("a tuple of whole numbers", ge=ge)

    def check(value: Any) -> Any:
        numbers = tuple(value) if isinstance(value, tuple | list) else (None,)
        if not all(type(one) is int and one in allowed for one in numbers):
            raise ValueError(f"must be {allowed}")
        return numbers

    return _field(default, check, allowed)


def text(default: Any = dataclasses.MISSING, *, optional: bool = False) -> Any:
    """A non-empty string field."""
    allowed = Range("a text", optional=optional)

    def check(value: Any) -> Any:
        if not isinstance(value, str) or not value:
            raise ValueError(f"must be {allowed}")
        return value

    return _field(default, check, allowed)


def choice(default: str | int, *others: str | int) -> Any:
    """A field with a fixed list of values; the first is the default."""
    options = (default, *others)
    allowed = Range(f"one of {', '.join(map(repr, options))}", choices=options)

    def check(value: Any) -> Any:
        if not any(value == option and type(value) is type(option) for option in options):
            raise ValueError(f"must be {allowed}")
        return value

    return _field(default, check, allowed)


def flag(default: bool) -> Any:
    """A field that is True or False."""
    allowed = Range("True or False", choices=(True, False))

    def check(value: Any) -> Any:
        if not isinstance(value, bool):
            raise ValueError(f"must be {allowed}")
        return value

    return _field(default, check, allowed)


def member(kind: type[Any], default: Any = dataclasses.MISSING, *, optional: bool = False) -> Any:
    """A field that holds another `Config` of the given kind."""
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    allowed = Range(f"{article} {kind.__name__}", optional=optional)

    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"must be {allowed}")
        return value

    return _field(default, check, allowed)


class Config:
    """Base of all validated settings; subclass it as a frozen dataclass.

    `repr` always shows positional fields; it shows keyword-only fields (options) only if they
    differ from their default.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # keeps @dataclass from adding its own

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            check: Check | None = field.metadata.get("check")
            if check is not None:
                value = getattr(self, field.name)
                try:
                    object.__setattr__(self, field.name, check(value))
                except ValueError as error:
                    self.refuse(f"{field.name} {error}", **{field.name: value})

    def refuse(self, reason: str, **shown: Any) -> None:
        """Raise the error for a bad field or combination, given as `shown`."""
        fields = ", ".join(f"{name}={shortened(value)}" for name, value in shown.items())
        places = [(name,) for name in shown]
        raise UndriftError(f"{type(self).__name__}({fields}): {reason}", places)

    def __repr__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not field.kw_only:
                bare = isinstance(value, Config)
                shown.append(repr(value) if bare else f"{field.name}={value!r}")
            elif value != field.default:
                shown.append(f"{field.name}={value!r}")
        return f"{reference(type(self)) or type(self).__name__}({', '.join(shown)})"


def _field(default: Any, check: Check, allowed: Range, tune: str | None = None) -> Any:
    check = _or_none(check) if allowed.optional else check
    facts = {"check": check, "range": allowed, "tune": tune}
    return dataclasses.field(default=default, metadata=facts)


def _or_none(check: Check) -> Check:
    def checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            return check(value)
        except ValueError as error:
            raise ValueError(f"{error}, or None") from None

    return checked
