"""What README and the documentation print is what happens."""

import re
from pathlib import Path

import pytest

from undrift.cli import compare
from undrift.cli.app import main
from undrift.experiment.experiment import Experiment

ROOT = Path(__file__).parent.parent
COSTS = "fedavg fedprox fedadam scaffold scaffoldm feddyn adabest FedGBO(Adam()) MFL(Adam())"
COSTS += " MimeLite(Adam()) Mime(Adam()) fedglad"


def blocks(path: str) -> list[str]:
    return re.findall(
        r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), flags=re.DOTALL
    )


def test_readme_example(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("README.md")
    exec(compile(example, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    final = {line.split(",")[0]: float(line.split()[-1].rstrip("%")) for line in lines}
    assert final["AdaBest(mu=0.02"] > final["FedAvg()"]


def test_cost_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cost", *COSTS.split(), "--markdown"])
    made = capsys.readouterr().out.split("\n\n")[1].strip()
    page = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- cost table.*?-->\n(.*?)\n<!-- end", page, flags=re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == made


def test_verdicts(tmp_path: Path) -> None:
    main(["paper", "report", "--out", str(tmp_path)])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- verdicts.*?-->\n(.*?)<!-- end", readme, flags=re.DOTALL)
    assert shown is not None
    assert shown[1] == (tmp_path / "verdicts.md").read_text(encoding="utf-8")


def test_the_example_file_is_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Experiment] = []
    monkeypatch.setattr(compare, "run", lambda experiment, *_, **__: made.append(experiment))
    main(["demo"])
    main(["run", str(ROOT / "examples" / "demo.toml")])
    assert made[0] == made[1]


@pytest.mark.slow
def test_demo_table(tmp_path: Path) -> None:
    main(["demo", "--out", str(tmp_path)])
    made = (tmp_path / "table.md").read_text(encoding="utf-8").split("\n\n")[0]
    assert made in (ROOT / "README.md").read_text(encoding="utf-8")
