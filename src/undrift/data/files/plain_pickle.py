"""Safe reader of pickles of numbers, strings, lists, dictionaries and numeric NumPy arrays.

CIFAR comes as pickles, and a pickle is a program. This reader supports only the instructions that
build plain values. The functions that a pickled array calls are replaced by records, so that
nothing is imported or called; anything else is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from undrift.config import UndriftError
from undrift.data.files.formats import reading, refuse
from undrift.later import np

KIND = "pickle"

NUMBERS = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"))
"""Allowed dtypes of arrays."""

INSTRUCTIONS = """
    PROTO FRAME STOP MARK POP POP_MARK DUP
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS
    EMPTY_DICT DICT SETITEM SETITEMS
    PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL
"""
"""Instructions that work as in pickle; REDUCE and BUILD are replaced, all others refused."""

ALLOWED = frozenset(getattr(pickle, name)[0] for name in INSTRUCTIONS.split())


def plain_pickle(data: bytes, name: object) -> dict[str, Any]:
    """The dictionary in a pickle. Keys are strings; strings of Python 2 are returned as bytes."""
    with reading(name, KIND):
        loaded = _Reader(data, name).load()
        if not isinstance(loaded, dict):
            raise refuse(name, KIND, f"a {type(loaded).__name__}, not a dictionary")
        return {_text(key): _value(value, name) for key, value in loaded.items()}


class _Dtype:
    """A pickled dtype, such as u1."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any) -> None:
        self.code, self.order = _text(code), "="

    def fill(self, state: Any) -> None:
        self.order = _text(state[1])

    def numpy(self) -> np.dtype[Any]:
        if self.code not in NUMBERS or self.order not in ("|", "<", ">", "="):
            raise ValueError(f"an array of type {self.order}{self.code}")
        return np.dtype(("=" if self.order == "|" else self.order) + self.code)


class _Array:
    """A pickled array: created empty by REDUCE, filled by BUILD from its bytes, without a copy."""

    __slots__ = ("value",)

    value: np.ndarray | None

    def __init__(self) -> None:
        self.value = None

    def fill(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise ValueError("an array of objects")
        number = dtype.numpy()
        sides_make_sense = all(type(side) is int and side >= 0 for side in shape)
        if not sides_make_sense or math.prod(shape) * number.itemsize != len(raw):
            raise ValueError(f"an array of shape {shape!s:.50} in {len(raw)} bytes")
        self.value = np.frombuffer(raw, number).reshape(shape, order="F" if fortran else "C")


class _Name:
    """Stands for a global that a pickled array refers to."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what


NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy", "ndarray"): "class",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "bytes",
}


class _Reader(pickle._Unpickler):
    """Python's pure-Python unpickler, without most of its instructions."""

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code in ALLOWED
    }

    def __init__(self, data: bytes, name: object) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self.name = name
        self.room = len(data)
        """bytes that may still be encoded from text; bounds memory if a text is used repeatedly"""

    def load(self) -> Any:
        try:
            return super().load()
        except KeyError as error:
            opcode = error.args[0] if error.args else None
            if type(opcode) is int and opcode not in self.dispatch:
                raise refuse(self.name, KIND, f"instruction {bytes([opcode])!r}") from None
            raise

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            asked = f"{module}.{name}"[:80]
            raise UndriftError(
                f"{self.name}: this pickle asks for {asked!r}, which is not plain data, so it was "
                "not read; fetch it again from its publisher"
            )
        return _Name(NAMES[module, name])

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack.pop()
        made: Any
        match function:
            case _Name(what="array"):
                made = _Array()
            case _Name(what="dtype"):
                made = _Dtype(arguments[0])
            case _Name(what="bytes"):
                text, encoding = arguments
                self.room -= len(text)
                if encoding not in ("latin1", b"latin1") or self.room < 0:
                    raise ValueError("text in place of bytes")
                made = text.encode("latin1")
            case _:
                raise ValueError("a call")
        self.stack.append(made)

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Array | _Dtype):
            raise ValueError("an object with a state")
        self.stack[-1].fill(state)

    dispatch[pickle.BUILD[0]] = load_build


def _text(value: Any) -> str:
    """A string; bytes, as Python 2 wrote strings, are decoded."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} in place of text")
    return value


def _value(value: Any, name: object) -> Any:
    if isinstance(value, _Array):
        if value.value is None:
            raise refuse(name, KIND, "an array without content")
        return value.value
    if isinstance(value, _Dtype | _Name):
        raise refuse(name, KIND, "a name in place of a value")
    return value
