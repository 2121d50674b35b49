"""The folder of a deployment: what `init` writes is an app that Flower can build and run."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.deploy.folder import LOOPBACK, PORT, DeploymentFolder
from undrift.experiment.experiment import Experiment


def test_what_init_writes_can_be_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["deploy", "init", str(tmp_path / "ward")])
    made = DeploymentFolder.open(tmp_path / "ward")
    _, data = Experiment.from_toml(made.experiment).check()
    assert len(data) == 3
    app = tomllib.loads(made.app.read_text(encoding="utf-8"))
    assert app["project"]["name"] == "ward"
    assert f"undrift run {tmp_path}/ward/experiment.toml" in capsys.readouterr().out


def test_an_experiment_of_yours_is_taken(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    made = DeploymentFolder.make(tmp_path / "first")
    mine.write_text(made.experiment.read_text(encoding="utf-8").replace("20", "7"))
    other = DeploymentFolder.make(tmp_path / "second", mine)
    assert Experiment.from_toml(other.experiment).rounds == 7


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    DeploymentFolder.make(tmp_path / "ward")
    with pytest.raises(UndriftError, match="exists already"):
        DeploymentFolder.make(tmp_path / "ward")


@pytest.mark.parametrize("name", ["Ward", "ward_1", "1ward", "w ard"])
def test_the_name_must_be_one_of_an_app(tmp_path: Path, name: str) -> None:
    with pytest.raises(UndriftError, match="cannot name a Flower app"):
        DeploymentFolder.make(tmp_path / name)


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="is not a deployment; make one with `undrift deploy"):
        DeploymentFolder.open(tmp_path)


def test_the_address_is_remembered(tmp_path: Path) -> None:
    made = DeploymentFolder.make(tmp_path / "ward")
    assert made.address(None, None) == (LOOPBACK, PORT)
    assert made.address("0.0.0.0", 7000) == ("0.0.0.0", 7000)
    assert made.address(None, None) == ("0.0.0.0", 7000)
    assert made.address(None, 7001) == ("0.0.0.0", 7001)


def test_keys_are_made_and_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed (undrift[flower])")
    place = str(tmp_path / "ward")
    main(["deploy", "init", place])
    main(["deploy", "keys", place, "--nodes", "2"])
    main(["deploy", "keys", place, "--nodes", "1", "--name", "lab"])
    told = capsys.readouterr().out
    assert re.findall(r"^(\S+): .*\.key$", told, re.MULTILINE)[-4:] == [
        "lab",
        "node-1",
        "node-2",
        "node-3",
    ]


def test_secrets_are_no_part_of_what_is_shipped(tmp_path: Path) -> None:
    """Flower builds a bundle of the folder for the nodes."""
    pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")
    place = tmp_path / "ward"
    main(["deploy", "init", str(place)])
    main(["deploy", "keys", str(place), "--nodes", "1"])
    (place / "run").mkdir()
    (place / "flower").mkdir()
    for secret in ("run/experiment.json", "flower/nodes.json", "keys/secret.json"):
        (place / secret).write_text("{}")
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    subprocess.run(
        [str(Path(sys.executable).parent / "flwr"), "build", "--app", str(place)],
        cwd=tmp_path,
        env={**os.environ, **quiet, "FLWR_HOME": str(tmp_path / "home")},
        check=True,
        capture_output=True,
    )
    (bundle,) = tmp_path.glob("*.fab")
    names = {name for name in zipfile.ZipFile(bundle).namelist() if not name.startswith(".info")}
    assert names == {"client.py", "server.py", "experiment.toml", "pyproject.toml"}
