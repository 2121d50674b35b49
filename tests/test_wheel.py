"""The wheel is complete: it is built, installed in an environment of its own, and used."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

import undrift

pytestmark = pytest.mark.slow  # `make wheel` runs them

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*PIP, *build], check=True)
    (found,) = folder.glob("undrift-*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "undrift"
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in ZipFile(wheel).namelist() if name.startswith("undrift/")} == files


def test_what_the_wheel_installs_compares_and_reports(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", wheel], check=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")

    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def say(command: str, *arguments: str) -> str:
        line = [python.with_name(command), *arguments]
        return subprocess.check_output(line, cwd=tmp_path, env=env, text=True).strip()

    where = say("python", "-c", "import undrift; print(undrift.__file__)")
    assert Path(where).is_relative_to(site)
    assert say("undrift", "--version") == undrift.__version__
    say("undrift", "compare", "fedavg", "--rounds", "1", "--seeds", "1", "--out", "run")
    assert (tmp_path / "run" / "report.html").exists()
    assert "@software{undrift" in say("undrift", "cite", "run")
