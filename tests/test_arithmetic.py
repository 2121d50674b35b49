"""Bits do not depend on memory addresses, and what they depend on is recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import undrift
from undrift.arithmetic import (
    ALIGNMENT,
    addresses_matter,
    aligned,
    change,
    facts,
    keeps_subnormals,
    misaligned,
    steady,
)
from undrift.data.federated import FederatedData
from undrift.engines import Compiled, Sequential, Threads

LATE = """
import json, sys
import torch
torch.randn(9, 9) @ torch.randn(9, 9)
from pathlib import Path
from undrift import AdaBest, Digits, IID, Local, Task, Uniform, federate, rounds
from undrift.runs import checkpoint
from undrift.arithmetic import facts
from undrift.engines import Sequential
task, path = Task(torch.nn.Linear(64, 10)), Path(sys.argv[1])
data = federate(Digits(), IID(clients=10), seed=0)
for round in rounds(AdaBest(), task, data, total=2, sampler=Uniform(3), engine=Sequential()):
    checkpoint.save(round.state, path)
    loaded = checkpoint.load(path).server
    assert float(loaded.x @ loaded.xbar) == float(round.server.x @ round.server.xbar)
print(json.dumps(facts()))
"""


def test_products_are_the_same_at_every_address() -> None:
    """MKL was told so when undrift was imported; without that it fails, on some processors."""
    assert not addresses_matter()


def test_a_process_that_multiplied_before_the_import_reads_states_bit_for_bit(
    tmp_path: Path,
) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "MKL_CBWR"}
    command = [sys.executable, "-c", LATE, str(tmp_path / "state.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["products"] in ("by address", "at any address")
    by_address = {"products": "", "rounding": ""}
    assert found | by_address == facts() | by_address


def test_what_lies_elsewhere_is_moved() -> None:
    here = torch.randn(3, 5)
    there = misaligned(here)
    assert there.data_ptr() % ALIGNMENT
    assert torch.equal(there, here)
    assert aligned(here) is here
    assert aligned(there).data_ptr() % ALIGNMENT == 0
    data = FederatedData.split((there, torch.zeros(3)), (there, torch.zeros(3)), [[0, 1, 2]])
    assert data.inputs.data_ptr() % ALIGNMENT == data.test_inputs.data_ptr() % ALIGNMENT == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_samples_lie_row_by_row(dtype: torch.dtype) -> None:
    """Else every step copies its batch, as with images that a file has transposed."""
    images = torch.arange(24).view(2, 1, 3, 4).to(dtype).transpose(2, 3)
    data = FederatedData.split((images, torch.zeros(2)), (images, torch.zeros(2)), [[0, 1]])
    assert data.inputs.is_contiguous()
    assert data.test_inputs.is_contiguous()
    assert torch.equal(data.inputs, images)


def test_the_hash_of_products_tells_how_they_round(monkeypatch: pytest.MonkeyPatch) -> None:
    here = facts()["rounding"]
    assert facts()["rounding"] == here
    product = torch.Tensor.__matmul__

    def in_pieces(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The same sums in another order."""
        half = a.shape[1] // 2
        return product(a[:, :half], b[:half]) + product(a[:, half:], b[half:])

    monkeypatch.setattr(torch.Tensor, "__matmul__", in_pieces)
    assert facts()["rounding"] != here


def test_a_change_of_arithmetic_is_told() -> None:
    here = facts()
    assert change(here, here) is None
    assert change({}, here) is None  # a run of an older version, which did not record it
    told = change({**here, "processor": "Other, AVX2"}, here)
    assert told is not None
    assert "processor Other, AVX2, now " in told
    assert "may differ in its last digits" in told
    older = {name: fact for name, fact in here.items() if name != "subnormals"}
    told = change(older, here | {"subnormals": "0"})
    assert told is not None
    assert "subnormals kept, now 0" in told


ZERO = pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="this processor always computes with them"
)


@ZERO
@pytest.mark.parametrize("kept", [True, False])
def test_what_a_thread_did_with_subnormal_numbers_is_restored(kept: bool) -> None:
    torch.set_flush_denormal(not kept)
    try:
        with steady():
            with steady():
                assert not keeps_subnormals()
            assert not keeps_subnormals()
        assert keeps_subnormals() is kept
    finally:
        torch.set_flush_denormal(False)


class Faint(torch.nn.Linear):
    """A linear layer whose outputs have a further term, which is 0 if subnormal numbers are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        tiny = 1e-20 * y.detach()
        return y + 1e38 * (tiny * tiny)


@ZERO
@pytest.mark.parametrize("engine", [Sequential(), Threads(workers=2), Compiled(workers=2)])
def test_subnormal_numbers_are_0_in_training_only(engine: Sequential | Threads) -> None:
    data = undrift.federate(undrift.Digits(), undrift.IID(clients=4), seed=0)
    layers, ends = (torch.nn.Linear(64, 10), Faint(64, 10)), []
    layers[1].load_state_dict(layers[0].state_dict())
    for layer in layers:
        for round in undrift.rounds(
            undrift.FedAvg(), undrift.Task(layer), data, total=2, engine=engine
        ):
            assert keeps_subnormals()
            end = round.server.x
        ends.append(end)
    assert torch.equal(*ends)
    assert not torch.equal(*(layer(data.test[0]) for layer in layers))
