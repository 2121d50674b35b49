"""`undrift list`: what there is, in groups, and all about one of them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from undrift.cli.app import main
from undrift.cli.listing import KINDS, known
from undrift.experiment.registry import OPTIMISERS

MINE = """
from dataclasses import dataclass

from undrift.core import Algorithm, Part, Struct, real


@dataclass(frozen=True)
class Half(Algorithm):
    \"\"\"Half the step.

    rate  the share

    Reference: A paper
    of mine.
    \"\"\"

    rate: float = real(0.5, gt=0)


@dataclass(frozen=True)
class Strict(Part):
    bound: float = real(gt=0)


@dataclass(frozen=True)
class Typo(Algorithm):
    def update(self, s, mean, round):
        return mean.dleta, Struct()


class Net:
    def __init__(self, shape, width: int = 8):
        raise AssertionError("it is only described")
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*arguments: str) -> Any:
        main(["list", *arguments, "--json"])
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_listed_in_order_and_described(kind: str, told: Any) -> None:
    rows = told(kind)
    assert {row["name"] for row in rows} == set(known(kind))
    assert all(row["about"] for row in rows)
    for group in {row["group"] for row in rows}:
        names = [row["name"].lower() for row in rows if row["group"] == group]
        assert names == sorted(names)


def test_algorithms_are_grouped(told: Any) -> None:
    groups = {row["name"]: row["group"] for row in told()}
    assert list(dict.fromkeys(groups.values())) == [
        *("algorithms", "parts", "compositions", "optimisers")
    ]
    one_each = {"AdaBest": "algorithms", "FedGLAD": "parts", "FedAdam": "compositions"}
    assert groups | one_each | {"Adam": "optimisers"} == groups


def test_an_algorithm_has_parameters_with_ranges_a_cost_and_a_paper(told: Any) -> None:
    about = told("algorithms", "adabest")
    assert about["description"].startswith(about["about"] + "\n\n")
    assert ">>>" not in about["description"]
    mu, beta, form, *_, plateau, _ = about["parameters"]
    assert (mu["name"], mu["default"], mu["values"], mu["ge"]) == ("mu", 0.02, "a number >= 0", 0)
    assert (beta["ge"], beta["le"]) == (0, 1)
    assert form["choices"] == ["text", "box"]
    assert plateau["values"] == "a Plateau, or None"
    assert about["cost"]["client_keeps"] == {"vectors": 1, "numbers": 1}
    assert about["reference"].startswith("Varno et al., AdaBest: Minimizing")


def test_a_composition_has_the_ranges_of_what_it_is_made_of(told: Any) -> None:
    about = told("fedadam")
    values = {one["name"]: one["values"] for one in about["parameters"]}
    assert values["lr"] == "a number > 0"
    assert values["weights"] == "one of 'samples', 'uniform'"
    assert values["beta1"] == "a number >= 0 and < 1"
    assert about["made_of"] == "ServerOpt(FedAvg(), Adam(lr=0.01))"
    form = told("fedavgm")["parameters"][2]
    assert form["values"] == "one of 'heavy_ball', 'ema'"


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_can_be_described(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in known(kind):
        main(["list", kind, name])
        shown = capsys.readouterr().out
        assert shown.startswith(f"{name}\n")
        costs = kind == "algorithms" and name not in OPTIMISERS
        assert ("\ncost of a round" in shown) == costs


def test_your_own(told: Any) -> None:
    half = told("./mine.py:Half")
    assert half["description"] == "Half the step.\n\nrate  the share"
    assert half["reference"] == "A paper of mine."
    assert half["cost"]["algorithm"] == "./mine.py:Half(rate=0.5)"
    _, bound = told("algorithms", "./mine.py:Strict")["parameters"]
    assert (bound["name"], bound["required"], bound["gt"]) == ("bound", True, 0)
    assert told("./mine.py:Typo")["cost"] is None
    shape, width = told("models", "./mine.py:Net")["parameters"]
    assert (shape["required"], width["values"], width["default"]) == (True, "int", 8)


def test_mistakes_are_told_before_torch_is_imported() -> None:
    script = """if True:
        import sys
        from undrift.cli.app import main
        for line in ["list", "adabezt"], ["list", "algorithms", "adabezt"], ["check", "adabezt"]:
            try:
                main(line)
            except SystemExit as end:
                assert end.code == 2
        assert "torch" not in sys.modules
        """
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["algorithms", "adabezt"], "no algorithm is called 'adabezt'; did you mean 'AdaBest'?"),
        (["data", "mnits"], "no data set is called 'mnits'; did you mean 'mnist'?"),
        (["unifrom"], "no kind or name is called 'unifrom'; did you mean 'Uniform'? known: algo"),
        (["model", "mlp"], "no kind is called 'model'; did you mean 'models'?"),
        (["./mine.py:Hlaf"], "did you mean 'Half'"),
    ],
)
def test_unknown_names(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["list", *arguments])
    assert exit.value.code == 2
    assert says in capsys.readouterr().err
