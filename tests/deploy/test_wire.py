"""Records on the wire: exact, and refused where they are not what they must be."""

import math
from typing import Any

import pytest
import torch

from undrift.core import Struct
from undrift.deploy.wire import Refused, facts_in, pack, unpack, with_facts

pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")

RECORD = Struct(
    delta=torch.tensor([1.0, -0.0, 1e-45, math.inf, math.nan]),
    wide=torch.tensor([[1 / 3, 2], [3, 4]], dtype=torch.float64),
    half=torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
    count=2**62 + 1,
    inner=Struct(rate=1 / 3, empty=torch.empty(0, 3), mask=torch.tensor([True, False])),
    scalar=torch.tensor(7),
)


def bits(record: Struct) -> dict[str, Any]:
    return {
        name: (
            value.dtype,
            value.shape,
            value.contiguous().reshape(-1).view(torch.uint8).tolist() if value.numel() else [],
        )
        if isinstance(value, torch.Tensor)
        else (type(value), value)
        for name, value in record.leaves()
    }


def test_records_arrive_bit_for_bit() -> None:
    content = pack({"t": 3, "name": "a", "yes": True, "x": 0.1}, up=RECORD)
    assert bits(unpack(content, "up")) == bits(RECORD)
    assert bits(unpack(content, "up", RECORD)) == bits(RECORD)
    assert facts_in(content) == {"t": 3, "name": "a", "yes": True, "x": 0.1}


def test_vectors_arrive_in_aligned_memory() -> None:
    found = unpack(pack({}, up=RECORD), "up")
    assert all(v.data_ptr() % 64 == 0 for _, v in found.leaves() if isinstance(v, torch.Tensor))


def test_one_set_of_records_serves_many_messages() -> None:
    shared = pack({}, down=RECORD)
    first, second = (with_facts(shared, {"client": i}) for i in (1, 2))
    assert (facts_in(first), facts_in(second)) == ({"client": 1}, {"client": 2})
    assert first["down.vectors"] is second["down.vectors"]


FORM = Struct(delta=torch.empty(3, device="meta"), inner=Struct(rate=0.0))
GOOD = Struct(delta=torch.zeros(3), inner=Struct(rate=1.0))


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (Struct(delta=torch.zeros(3)), r"up.inner.rate is missing"),
        (GOOD | Struct(more=torch.zeros(10**6)), r"up.more is not asked for"),
        (GOOD | Struct(delta=torch.zeros(4)), r"up.delta has the shape \(4\), not \(3\)"),
        (GOOD | Struct(delta=torch.zeros(3, 1)), r"up.delta has the shape \(3, 1\), not \(3\)"),
        (GOOD | Struct(delta=torch.zeros(3).double()), "up.delta is float64, not float32"),
        (GOOD | Struct(delta=1.0), "up.delta is not a vector"),
        (GOOD | Struct(inner=Struct(rate=torch.zeros(3))), "up.inner.rate is not a number"),
        (GOOD | Struct(inner=Struct(rate="1")), "up.inner.rate is not a number"),
    ],
)
def test_a_misshapen_record_is_refused(sent: Struct, why: str) -> None:
    with pytest.raises(Refused, match=why):
        unpack(pack({}, up=sent), "up", FORM)


def test_what_is_told_about_an_array_must_be_true() -> None:
    from flwr.app import Array

    for array, why in (
        (Array("float32", (3,), "raw", b"\0" * 2**20), "1048576 bytes, and its shape .* needs 12"),
        (Array("float32", (3,), "numpy.ndarray", b"\x93NUMPY"), "is numpy.ndarray of float32"),
        (Array("load", (3,), "raw", b""), "of load, not raw bytes of a known type"),
        (Array("float32", (-1, -12), "raw", b"\0" * 48), "48 bytes"),
    ):
        content = pack({}, up=GOOD)
        content["up.vectors"]["delta"] = array
        with pytest.raises(Refused, match=why):
            unpack(content, "up")


def test_foreign_messages_are_refused() -> None:
    from flwr.app import ConfigRecord, RecordDict

    with pytest.raises(Refused, match="not one of undrift"):
        facts_in(RecordDict({"config": ConfigRecord({"lr": 0.1})}))
    with pytest.raises(Refused, match="up is missing"):
        unpack(pack({}), "up")
