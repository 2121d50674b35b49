"""The reader of pickles: plain data come through, programs do not run."""

import io
import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.test_formats import frugal, mutations
from undrift.config import UndriftError
from undrift.data.files.plain_pickle import plain_pickle

PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 6)


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, which is how CIFAR was written."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    def save_string(self, data: bytes) -> None:
        short = len(data) < 256
        head = b"U" + bytes([len(data)]) if short else b"T" + struct.pack("<i", len(data))
        self.write(head + data)
        self.memoize(data)

    dispatch[bytes] = save_string


def python2(value: object) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def batch() -> dict[Any, Any]:
    return {
        b"batch_label": b"training batch 1 of 5",
        b"labels": [3, 1, 4, 1],
        b"data": PIXELS,
        b"filenames": [b"a.png", b"b.png", b"c.png", b"d.png"],
    }


def read(data: bytes) -> dict[str, Any]:
    return plain_pickle(data, "toy")


def test_a_pickle_of_python_2() -> None:
    loaded = read(python2(batch()))
    assert list(loaded) == ["batch_label", "labels", "data", "filenames"]
    assert loaded["labels"] == [3, 1, 4, 1]
    assert loaded["filenames"][1] == b"b.png"
    assert loaded["data"].dtype == np.uint8
    assert np.array_equal(loaded["data"], PIXELS)


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize(
    "array",
    [
        PIXELS,
        np.asfortranarray(PIXELS),
        np.arange(3.0),
        np.arange(3, dtype=">i4"),
        np.array([True, False]),
    ],
    ids=repr,
)
def test_every_protocol(protocol: int, array: np.ndarray) -> None:
    names = {"a": array, "n": 1 << 70, "x": 0.5, "none": None, "list": [1, "é", (2, b"\xff")]}
    data = pickle.dumps(names, protocol=protocol)
    for spelt in (data, data.replace(b"numpy._core.", b"numpy.core.")):
        if protocol == 4 and spelt is not data:
            continue  # names have their length before them
        loaded = read(spelt)
        assert np.array_equal(loaded["a"], array)
        assert loaded["a"].dtype == array.dtype
        assert {key: loaded[key] for key in ("n", "x", "none", "list")} == {
            key: names[key] for key in ("n", "x", "none", "list")
        }


class Run:
    """Unpickled in the usual way, it makes a folder."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(protocol: int, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for function in (os.mkdir, eval, getattr, __import__, np.load, np.ndarray, type):
        with pytest.raises(UndriftError, match="toy: "):
            read(pickle.dumps({"data": Run(function, str(trap))}, protocol=protocol))
    assert not trap.exists()
    assert pickle.loads(pickle.dumps(Run(os.mkdir, str(trap)))) is None
    assert trap.exists()  # the trap does work


PROGRAMS = {
    "a foreign name": b"cos\nsystem\n(S'true'\ntR.",
    "a name without a call": b"}S'a'\nccopyreg\n_reconstructor\ns.",
    "an old instance": b"(S'true'\nios\nsystem\n.",
    "an object": b"(cnumpy\nndarray\nI3\no.",
    "a new object": b"\x80\x02cnumpy\nndarray\n(I9999999\nt\x81.",
    "an array made by hand": b"cnumpy\nndarray\n((I9999999\nttR.",
    "a state for a name": b"cnumpy\ndtype\n}S'a'\nI1\nsb.",
    "a state for a dictionary": b"}}S'a'\nI1\nsb.",
    "a persistent name": b"Pname\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a byte array of 2^60": b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b".",
    "bytes of 2^60": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b".",
    "a string of 2^31": b"T" + struct.pack("<i", 2**31 - 1) + b".",
    "a frame of 2^62": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b".",
    "a memo of 2^32": b"}r" + struct.pack("<I", 2**32 - 1) + b"0N.",
    "no end": b"}",
    "nothing": b"",
    "nothing on the stack": b".",
    "a list": b"].",
    "a key that is no text": b"}I1\nI1\ns.",
    "a key that cannot be one": b"}]I1\ns.",
    "an array without content": b"}S'a'\ncnumpy.core.multiarray\n_reconstruct\n(tRs.",
    "a name for a value": b"}S'a'\ncnumpy\ndtype\ns.",
    "a long name": b"\x80\x04" + 2 * (b"X" + struct.pack("<I", 9000) + b"\n" * 9000) + b"\x93.",
    "deep": b"]" * 100_000 + b"a" * 99_999 + b".",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_are_refused(program: bytes) -> None:
    with pytest.raises(UndriftError, match=r"^toy: "):
        read(program)
    frugal(read, program)


def array_with(dtype: bytes, shape: bytes, raw: bytes = b"S'abc'") -> bytes:
    """A pickle of an array, written by hand."""
    return (
        b"}S'a'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(" + shape + b"tcnumpy\ndtype\n(S'" + dtype + b"'\nI0\nI1\ntR"
        b"(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\n" + raw + b"\ntbs."
    )


def test_an_array_written_by_hand() -> None:
    assert read(array_with(b"u1", b"I3\n"))["a"].tolist() == [97, 98, 99]


@pytest.mark.parametrize(
    ("dtype", "shape", "raw"),
    [
        (b"O8", b"I3\n", b"S'abc'"),
        (b"V3", b"I1\n", b"S'abc'"),
        (b"u1", b"I4\n", b"S'abc'"),
        (b"u1", b"I-3\nI-1\n", b"S'abc'"),
        (b"u1", b"I0\nI9223372036854775807\n", b"S'abc'"),
        (b"u1", b"F3\n", b"S'abc'"),
        (b"u1", b"I3\n", b"]I1\na"),
    ],
)
def test_arrays_that_lie(dtype: bytes, shape: bytes, raw: bytes) -> None:
    with pytest.raises(UndriftError, match="not a valid pickle"):
        read(array_with(dtype, shape, raw))


def test_text_is_not_multiplied() -> None:
    """One long text, made into bytes again and again, would fill the memory."""
    head = b"(X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x01"
    again = b"c_codecs\nencode\nh\x01X\x06\0\0\0latin1\x86R"
    with pytest.raises(UndriftError, match="in place of bytes"):
        read(head + again * 3000 + b"l.")
    tracemalloc.start()
    with pytest.raises(UndriftError):
        read(head + again * 3000 + b"l.")
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@given(mutations(python2(batch())))
def test_fuzz_python_2(data: bytes) -> None:
    frugal(read, data)


@given(st.integers(0, 4).flatmap(lambda p: mutations(pickle.dumps(batch(), protocol=p))))
def test_fuzz_every_protocol(data: bytes) -> None:
    frugal(read, data)


@given(st.lists(st.sampled_from([bytes([code]) for code in range(256)]), max_size=40))
def test_fuzz_programs(codes: list[bytes]) -> None:
    frugal(read, b"".join(codes) + b".")
