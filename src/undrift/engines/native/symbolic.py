"""Symbolic vectors: running an algorithm's hooks on them builds the graph of a local step."""

from __future__ import annotations

from itertools import count
from typing import Any, NoReturn

from torch import Tensor

from undrift.core import Struct
from undrift.engines.native.step_graph import Node
from undrift.engines.native.trace import NotTraceable

COMMUTATIVE = {"add", "mul", "max", "min"}


class StepTracer:
    """Collects the nodes of a local step and the values of its constants."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: list[float] = []
        self._numbers = count()

    def inputs(self, record: Struct, prefix: str) -> Struct:
        """The record with its vectors replaced by symbols, named by path: `local.y`, `me.opt.m`."""
        fields: dict[str, Any] = {}
        for name, value in record.items():
            path = f"{prefix}.{name}"
            if isinstance(value, Struct):
                fields[name] = self.inputs(value, path)
            elif not isinstance(value, Tensor):
                fields[name] = value
            elif value.ndim == 0:
                fields[name] = float(value)
            else:
                self.nodes.append(Node(path, "input"))
                fields[name] = Symbol(self, path)
        return Struct(**fields)

    def add(self, op: str, *args: Any, scalar: bool = False) -> Symbol:
        """Add a node: an operation on symbols and numbers."""
        name = f"%{next(self._numbers)}"
        names = tuple(a.name if isinstance(a, Symbol) else self._constant(a) for a in args)
        self.nodes.append(Node(name, op, names, scalar))
        return Symbol(self, name, scalar)

    def _constant(self, value: float) -> str:
        self.constants.append(float(value))
        return f"#{len(self.constants) - 1}"


class Symbol:
    """A vector, or a scalar computed from vectors, whose value is not known while tracing."""

    __slots__ = ("name", "scalar", "tracer")

    def __init__(self, tracer: StepTracer, name: str, scalar: bool = False) -> None:
        self.tracer, self.name, self.scalar = tracer, name, scalar

    def _with(self, op: str, other: Any, swapped: bool = False) -> Symbol:
        """A binary operation with a symbol or number; if commutative, vectors go first."""
        if isinstance(other, Tensor) and other.ndim == 0:
            other = float(other)
        if not isinstance(other, Symbol | float | int):
            raise NotTraceable(f"a local step with a {type(other).__name__} in it")
        a, b = (other, self) if swapped else (self, other)
        if op in COMMUTATIVE and _is_scalar(a) and not _is_scalar(b):
            a, b = b, a
        return self.tracer.add(op, a, b, scalar=_is_scalar(a) and _is_scalar(b))

    def _of(self, op: str) -> Symbol:
        return self.tracer.add(op, self, scalar=self.scalar)

    def __add__(self, other: Any) -> Symbol:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Symbol:
        return self._with("add", other, True)

    def __sub__(self, other: Any) -> Symbol:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._with("sub", other, True)

    def __mul__(self, other: Any) -> Symbol:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._with("mul", other, True)

    def __truediv__(self, other: Any) -> Symbol:
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._with("div", other, True)

    def __pow__(self, power: Any) -> Symbol:
        if power == 2:
            return self * self
        if power == 0.5:
            return self.sqrt()
        raise NotTraceable(f"a local step with the power {power}")

    def __neg__(self) -> Symbol:
        return self._of("neg")

    def __abs__(self) -> Symbol:
        return self._of("abs")

    def __matmul__(self, other: Symbol) -> Symbol:
        if _is_scalar(self) or _is_scalar(other):
            raise NotTraceable(f"a local step with a product of a vector and {other!r}")
        return self.tracer.add("dot", self, other, scalar=True)

    def __bool__(self, *_: object) -> NoReturn:
        raise NotTraceable("a local step that looks at values")

    __float__ = __int__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__

    def abs(self) -> Symbol:
        return self._of("abs")

    def sqrt(self) -> Symbol:
        return self._of("sqrt")

    def sign(self) -> Symbol:
        return self._of("sign")

    def exp(self) -> Symbol:
        return self._of("exp")

    def log(self) -> Symbol:
        return self._of("log")

    def square(self) -> Symbol:
        return self * self

    def dot(self, other: Symbol) -> Symbol:
        return self @ other

    def norm(self) -> Symbol:
        return (self @ self).sqrt()

    def maximum(self, other: Any) -> Symbol:
        return self._with("max", other)

    def minimum(self, other: Any) -> Symbol:
        return self._with("min", other)

    def clamp(self, min: Any = None, max: Any = None) -> Symbol:
        low = self if min is None else self.maximum(min)
        return low if max is None else low.minimum(max)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the method of the same name: torch.sqrt(v) is v.sqrt()."""
        method = getattr(cls, function.__name__, None)
        if method is None or not isinstance(args[0], Symbol):
            raise NotTraceable(f"a local step with torch.{function.__name__}")
        return method(*args, **(kwargs or {}))


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, Symbol) or value.scalar
