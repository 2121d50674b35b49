"""The examples run and say what they should; pairs of them differ by little."""

import difflib
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "centralised": "after 40 epochs: 9",
    "federated": "after 40 rounds: ",
    "fedavg": "round 60: ",
    "adabest": "round 60: 9",
    "own_algorithm": "with alpha=1 it is FedAvg, bit for bit",
    "own_part": "Averaged(AdaBest(mu=0.02, beta=0.9), decay=0.9): last 9",
    "own_sampler": "Nights(clients=5, zones=20): ",
    "own_dataset": "AdaBest(mu=0.02, beta=0.96): ",
    "own_adapter": "the numbers are those of the reference with K = epochs instead of local steps",
}
"""how the last line of each begins"""


def run(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    return capsys.readouterr().out.splitlines()


def test_every_example_is_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, capsys)[-1].startswith(SAYS[name])


@pytest.mark.parametrize(
    ("before", "after", "most"), [("centralised", "federated", 20), ("fedavg", "adabest", 4)]
)
def test_the_difference_is_the_lesson(before: str, after: str, most: int) -> None:
    lines = ((EXAMPLES / f"{name}.py").read_text().splitlines() for name in (before, after))
    changed = [line for line in difflib.ndiff(*lines) if line[0] in "+-"]
    assert len(changed) <= most
