"""Users' own code by name: read, repeated, hashed, and never executed unasked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import undrift
from undrift.config import UndriftError, own
from undrift.config.expressions import parse
from undrift.experiment.experiment import Experiment

MINE = """
from dataclasses import dataclass

import beside
from undrift.core import Algorithm, Part, real
from undrift.federation.sampling import Uniform

with open("executed", "a") as file:
    file.write("x")

@dataclass(frozen=True)
class Half(Algorithm):
    rate: float = real(0.5, gt=0)

    def update(self, s, mean, round):
        direction, changes = super().update(s, mean, round)
        return self.rate * direction, changes

@dataclass(frozen=True)
class Around(Part):
    pass

class Pairs(Uniform):
    pass

def plain():
    return 3

number = 3
"""

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes, width=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, classes)
        )

    def forward(self, x):
        return self.layers(x)

def net(hidden):
    return nn.Linear(hidden, 10)

def wrong(shape):
    return 3

def focal(outputs, targets, gamma=2.0):
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return ((1 - torch.exp(-losses)) ** gamma * losses).mean()

def logistic(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.float())

class Focal:
    def __init__(self, gamma=2.0):
        self.gamma = gamma

    def __call__(self, outputs, targets):
        return focal(outputs, targets, self.gamma)
"""

DATA = """
import numpy as np

def load(seed, clients=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 5)).astype("float32")
    return x, (x[:, 0] > 0).astype(int), np.arange(80) % clients

def values():
    x, y, owners = load(0)
    return x, x[:, 1] + 0.0, owners
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for name, text in {"mine": MINE, "nets": NETS, "mydata": DATA, "beside": ""}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    yield tmp_path
    for name in ("mine", "nets", "mydata", "beside"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "text",
    [
        "./mine.py:Half(rate=0.3)",
        "FedGLAD(./mine.py:Half(rate=0.5), gamma=0.1)",
        "./mine.py:Around(FedAvg())",
        "./mine.py:Around(./mine.py:Half(rate=0.25))",
        "ServerOpt(./mine.py:Half(rate=0.5), Adam(lr=0.1))",
    ],
)
def test_a_repr_names_itself(text: str) -> None:
    made = undrift.algorithm(text)
    assert undrift.algorithm(repr(made)) == made
    assert set(own.code([repr(made)])) == {"./mine.py"}


@pytest.mark.parametrize(
    "text",
    [
        "mine.py:Half",
        "./mine.py:Half",
        " ./mine.py:Half ( ) ",
        "./x/../mine.py:Half()",
        "mine:Half",
    ],
)
def test_spellings_are_one_name(text: str) -> None:
    undrift.algorithm("./mine.py:Half")
    assert repr(undrift.algorithm(text)) == "./mine.py:Half(rate=0.5)"


def test_a_chain_takes_own_code_at_every_place() -> None:
    made = undrift.algorithm("fedglad + ./mine.py:Around + mine.py:Half(rate=1)")
    assert repr(made) == "FedGLAD(./mine.py:Around(./mine.py:Half(rate=1.0)))"


def test_code_is_executed_once_for_each_content(folder: Path) -> None:
    first = type(undrift.algorithm("./mine.py:Half"))
    assert type(undrift.algorithm("./mine.py:Half")) is first
    assert (folder / "executed").read_text(encoding="utf-8") == "x"
    before = own.code(["./mine.py:Half()"])
    with (folder / "mine.py").open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    assert type(undrift.algorithm("./mine.py:Half")) is not first
    assert own.code(["./mine.py:Half()"]) != before


def test_installed_packages_are_nobodys_own(folder: Path) -> None:
    """Ray ships modules of one's own; torch's would not go."""
    mine = own.load("./mine.py", "Half")
    own.load("torch.nn.functional", "mse_loss")
    names = [module.__name__ for module in own.modules()]
    assert mine.__module__ in names
    assert not any(name.startswith("torch") for name in names)


def test_quoted_texts_are_no_code(folder: Path) -> None:
    with pytest.raises(UndriftError):
        parse('Digits("./mine.py:Half")', {}, "data set")
    assert not (folder / "executed").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("./mine.py:Halv", r"^\./mine\.py: no class or function is called 'Halv'; did you mean"),
        ("./mine.py:number", "no class or function is called 'number'"),
        ("./mine.py:Half(rat=1)", r"^Half\(rat=...\): no parameter is called 'rat'"),
        ("./mine.py:Half(rate=0)", r"Half\(rate=0\): rate must be a number > 0"),
        ("./none.py:Half", r"^\./none\.py is not there; paths begin in the current folder"),
        ("none.such:Half", r"^no module is called 'none.such'"),
        ("./mine.py:Pairs", "is not an algorithm"),
        ("./mine.py", r"^\./mine\.py is a file; write \./mine\.py:NAME"),
        ("./mine.py:plain", r"'./mine.py:plain' is of the type int, no algorithm"),
        ("./broken.py:Half", r"^\./broken\.py, line 2: "),
        ("./fails.py:Half", r"^\./fails\.py, line 3: ZeroDivisionError: division by zero$"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, text: str, message: str) -> None:
    (folder / "broken.py").write_text("x = 1\nclass Half(:\n", encoding="utf-8")
    (folder / "fails.py").write_text("x = 1\n\n1 / 0\n", encoding="utf-8")
    with pytest.raises(UndriftError, match=message):
        undrift.algorithm(text)


def experiment(**given: object) -> Experiment:
    usual: dict[str, object] = {
        "algorithms": ["fedavg"],
        "data": "./mydata.py:load",
        "partition": "Natural()",
        "model": "./nets.py:Net(width=3)",
        "local": "Local(lr=0.1)",
        "sampler": "Uniform(2)",
    }
    return Experiment(**usual | given)  # type: ignore[arg-type]


def test_models_data_and_losses_of_ones_own() -> None:
    made = experiment(loss="./nets.py:focal(gamma=1.0)", sampler="./mine.py:Pairs(2)")
    again = Experiment.from_toml(_written(made))
    assert again.resolved() == made.resolved()
    assert set(made.resolved()["code"]) == {"./mine.py", "./mydata.py", "./nets.py"}
    task, data = made.check()
    assert (len(data), task.classifies, len(task.x0)) == (4, True, 5 * 3 + 3 + 3 * 2 + 2)


def _written(made: Experiment) -> Path:
    path = Path("experiment.toml")
    path.write_text(made.to_toml(), encoding="utf-8")
    return path


def test_python_takes_the_objects_themselves() -> None:
    import mydata  # type: ignore[import-not-found]
    import nets  # type: ignore[import-not-found]

    named, given = experiment(), experiment(data=mydata.load, model=nets.Net)
    assert given.data.load(0).classes == named.data.load(0).classes
    assert repr(given.model) in ("nets:Net()", "./nets.py:Net()")


@pytest.mark.parametrize("loss", ["./nets.py:focal(gamma=0.5)", "./nets.py:Focal(gamma=0.5)"])
def test_a_loss_is_a_function_or_a_class(loss: str) -> None:
    task, _ = experiment(loss=loss).check()
    outputs, targets = torch.randn(6, 2), torch.tensor([0, 1, 1, 0, 1, 1])
    wanted = own.load("./nets.py", "focal")(outputs, targets, 0.5)
    assert torch.equal(task.loss(outputs, targets), wanted)


def test_a_single_logit_is_a_class() -> None:
    made = experiment(model="torch.nn:Linear(5, 1)", loss="./nets.py:logistic")
    task, data = made.check()
    x = torch.zeros(6)
    x[0] = 1.0  # the class is whether the first input is positive
    assert task.evaluate(x, task.buffers0, *data.test[:2])[1] == 1.0
    assert task.hits(-x, task.buffers0, *data.test[:2])[0].sum() == 0


def test_a_loss_of_values_does_not_broadcast() -> None:
    made = experiment(data="./mydata.py:values", loss="torch.nn.functional:mse_loss")
    task, _ = made.check()
    assert float(task.loss(torch.ones(4, 1), torch.tensor([0.0, 0.0, 2.0, 2.0]))) == 1


def test_losses_by_name() -> None:
    half, whole = (
        experiment(data="./mydata.py:values", loss=name).check()[0]
        for name in ("squared_error", "mse")
    )
    outputs, targets = torch.randn(5, 1), torch.randn(5)
    assert torch.equal(2 * half.loss(outputs, targets), whole.loss(outputs, targets))
    with pytest.raises(UndriftError, match=r"no loss is called .mae..*your own"):
        experiment(loss="mae")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "./nets.py:wrong"}, "made int, not a torch.nn.Module"),
        ({"model": "./nets.py:net"}, "hidden must be given"),
        ({"model": "./nets.py:Net(depth=2)"}, "no parameter is called 'depth'"),
        ({"model": "./nets.py:Net(width='x')"}, r"nets\.py:Net\(width='x'\).*TypeError"),
        ({"sampler": "./mine.py:Half"}, "must be a Sampler"),
        ({"model": "linear", "loss": "mse"}, "targets are classes; use 'cross_entropy'"),
        ({"data": "./mydata.py:values", "loss": "cross_entropy"}, "are numbers; use 'mse'"),
        ({"model": torch.nn.Linear(5, 2)}, "give the class Linear itself"),
        ({"model": "./nets.py:net(hidden=4)"}, r"whose inputs have the shape \(5,\): mat1"),
        ({"data": "./nets.py:wrong(shape=1)"}, "returned int"),
    ],
)
def test_what_does_not_fit_is_told(given: dict[str, object], message: str) -> None:
    with pytest.raises(UndriftError, match=message):
        experiment(**given).check()


def test_settings_without_own_code_keep_their_identity() -> None:
    resolved = experiment(data="digits", partition="IID(4)", model="mlp").resolved()
    assert not {"code", "loss"} & resolved.keys()
