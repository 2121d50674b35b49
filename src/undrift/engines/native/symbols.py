"""Symbols that stand for vectors: an algorithm's hooks run on them, and the arithmetic is noted."""

from __future__ import annotations

from typing import Any, NoReturn

from torch import Tensor

from undrift.core import Struct
from undrift.engines.native.trace import NotTraceable

WITH_NUMBER = {"ADD": "ADDS", "MUL": "MULS", "DIV": "DIVS", "MAX": "MAXS", "MIN": "MINS"}
NUMBER_FIRST = {"ADD": "ADDS", "SUB": "RSUBS", "MUL": "MULS", "DIV": "RDIVS"}
NUMBER_FIRST |= {"MAX": "MAXS", "MIN": "MINS"}


class Symbol:
    """A vector, or a number that depends on vectors, in the record of a step."""

    __slots__ = ("args", "code", "number", "place", "tape")

    def __init__(self, tape: Tape, code: str, args: tuple[Any, ...], number: bool = False) -> None:
        self.tape, self.code, self.args, self.number = tape, code, args, number
        self.place = len(tape.symbols)
        tape.symbols.append(self)

    def _with(self, code: str, other: Any, swapped: bool = False) -> Symbol:
        """An operation on this and another symbol or number."""
        if isinstance(other, Tensor) and other.ndim == 0:
            other = float(other)
        if not isinstance(other, Symbol | float | int):
            raise NotTraceable(f"a local step with a {type(other).__name__} in it")
        a, b = (other, self) if swapped else (self, other)
        if all(not isinstance(one, Symbol) or one.number for one in (a, b)):
            return Symbol(self.tape, f"S_{code}", (a, b), number=True)
        if not isinstance(a, Symbol) or a.number:
            return Symbol(self.tape, NUMBER_FIRST[code], (b, a))
        if isinstance(b, Symbol) and not b.number:
            return Symbol(self.tape, code, (a, b))
        if code == "SUB":
            return Symbol(self.tape, "ADDS", (a, -b))
        return Symbol(self.tape, WITH_NUMBER[code], (a, b))

    def _of(self, code: str) -> Symbol:
        return Symbol(self.tape, f"S_{code}" if self.number else code, (self,), self.number)

    def __add__(self, other: Any) -> Symbol:
        return self._with("ADD", other)

    def __radd__(self, other: Any) -> Symbol:
        return self._with("ADD", other, True)

    def __sub__(self, other: Any) -> Symbol:
        return self._with("SUB", other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._with("SUB", other, True)

    def __mul__(self, other: Any) -> Symbol:
        return self._with("MUL", other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._with("MUL", other, True)

    def __truediv__(self, other: Any) -> Symbol:
        return self._with("DIV", other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._with("DIV", other, True)

    def __pow__(self, power: Any) -> Symbol:
        if power == 2:
            return self * self
        if power == 0.5:
            return self.sqrt()
        raise NotTraceable(f"a local step with the power {power}")

    def __neg__(self) -> Symbol:
        return self._of("NEG")

    def __abs__(self) -> Symbol:
        return self._of("ABS")

    def __matmul__(self, other: Symbol) -> Symbol:
        return Symbol(self.tape, "DOT", (self, other), number=True)

    def __bool__(self) -> NoReturn:
        raise NotTraceable("a local step that looks at values")

    __float__ = __int__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__

    def abs(self) -> Symbol:
        return self._of("ABS")

    def sqrt(self) -> Symbol:
        return self._of("SQRT")

    def sign(self) -> Symbol:
        return self._of("SIGN")

    def exp(self) -> Symbol:
        return self._of("EXP")

    def log(self) -> Symbol:
        return self._of("LOG")

    def square(self) -> Symbol:
        return self * self

    def dot(self, other: Symbol) -> Symbol:
        return self @ other

    def norm(self) -> Symbol:
        return (self @ self).sqrt()

    def maximum(self, other: Any) -> Symbol:
        return self._with("MAX", other)

    def minimum(self, other: Any) -> Symbol:
        return self._with("MIN", other)

    def clamp(self, min: Any = None, max: Any = None) -> Symbol:
        low = self if min is None else self.maximum(min)
        return low if max is None else low.minimum(max)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """torch.sqrt(v) is v.sqrt(), where that exists."""
        method = getattr(cls, function.__name__, None)
        if method is None or not isinstance(args[0], Symbol):
            raise NotTraceable(f"a local step with torch.{function.__name__}")
        return method(*args, **(kwargs or {}))


class Tape:
    """The record of one local step."""

    def __init__(self) -> None:
        self.symbols: list[Symbol] = []

    def take(self, record: Struct) -> Struct:
        """A record whose vectors are symbols."""
        return record.map(self._take)

    def _take(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.ndim == 0:
            return float(value)
        return Symbol(self, "INPUT", (value,))
