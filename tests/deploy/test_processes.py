"""Safe defaults of Flower's processes, and a whole deployment on loopback."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.deploy import keys, processes, serving
from undrift.deploy.check import children
from undrift.deploy.folder import LOOPBACK, DeploymentFolder
from undrift.deploy.processes import (
    Link,
    environment,
    free_port,
    gate_command,
    superlink_command,
    supernode_command,
)
from undrift.deploy.serving import join, serve
from undrift.system.lock import Lock

SAFE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def options(command: list[str]) -> dict[str, str]:
    """Flags of a command, with what follows each."""
    pairs = zip(command, [*command[1:], ""], strict=True)
    return {name: value for name, value in pairs if name.startswith("--")}


def test_nothing_is_reported_or_installed_at_run_time(tmp_path: Path) -> None:
    found = environment(tmp_path)
    assert {name: found[name] for name in SAFE} == SAFE
    assert found["FLWR_HOME"] == str(tmp_path)


def test_the_superlink_listens_on_loopback_and_asks_nodes_for_keys(tmp_path: Path) -> None:
    folder = DeploymentFolder(tmp_path)
    found = options(superlink_command(folder, 7))
    assert (found["--host"], found["--port"]) == (LOOPBACK, "7")
    assert found.keys() >= {
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        "--ssl-certfile",
        "--ssl-keyfile",
        "--ssl-ca-certfile",
        "--database",
    }
    assert "--insecure" not in found
    assert gate_command(folder, "0.0.0.0", 9, 7)[3:6] == ["0.0.0.0", "9", f"https://{LOOPBACK}:7"]


def test_a_node_verifies_the_server_and_installs_nothing(tmp_path: Path) -> None:
    command = supernode_command("a:1", tmp_path / "k", tmp_path / "ca", 5, {"data": 'a "b"'})
    found = options(command)
    assert found["--root-certificates"] == str(tmp_path / "ca")
    assert found["--auth-supernode-private-key"] == str(tmp_path / "k")
    assert (found["--host"], found["--port"]) == (LOOPBACK, "5")
    assert found["--node-config"] == r'data="a \"b\""'
    assert not found.keys() & {"--insecure", "--allow-runtime-dependency-installation"}


def test_a_node_needs_its_files(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")
    key, ca = tmp_path / "n.key", tmp_path / "ca.crt"
    with pytest.raises(UndriftError, match=r"n\.key: no such file; give the private key"):
        next(join("a:1", key, ca, tmp_path, {}))
    key.write_text("secret")
    ca.write_text("public")
    key.chmod(0o644)
    with pytest.raises(UndriftError, match=r"others may read .*n\.key; `chmod 600` it"):
        next(join("a:1", key, ca, tmp_path, {}))


@pytest.mark.parametrize(
    ("minutes", "why"),
    [
        (10, r"the clock of this device is (59\d|600) seconds behind the server's; set it$"),
        (-1, r"the clock of this device is 6\d seconds ahead of the server's; set it$"),
        (0, "if the server refused it, its key is not registered, or another node has the same"),
        (None, r"fl:1 does not answer \(it is down\)$"),
    ],
)
def test_a_node_that_ends_says_why(
    minutes: int | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate tells its time; Flower's node says nothing if its clock is wrong."""
    pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")
    import httpx

    def gate(*given: object, **more: object) -> httpx.Response:
        if minutes is None:
            raise httpx.ConnectError("it is down")
        there = datetime.now(UTC) + timedelta(minutes=minutes)
        return httpx.Response(404, headers={"date": format_datetime(there, usegmt=True)})

    monkeypatch.setattr(httpx, "get", gate)
    monkeypatch.setattr(serving, "_run", lambda *given: 1)
    keys.make_authority(tmp_path)
    keys.make_node(tmp_path, "n")
    said = next(join("fl:1", tmp_path / "n.key", tmp_path / "ca.crt", tmp_path / "state", {}))
    assert said.startswith("the node ended with code 1, and starts again in 15 seconds: ")
    assert re.search(why, said), said


@pytest.mark.parametrize("deaf", [False, True])
def test_a_node_stays_a_moment_after_ctrl_c(
    deaf: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the server can read its upload; then it says goodbye, or is killed."""
    node = f"""
import os, pathlib, signal, sys
here = pathlib.Path({str(tmp_path)!r})
def leave(*_):
    if not {deaf}:
        (here / "goodbye").touch()
        sys.exit()
signal.signal(signal.SIGINT, leave)
(here / "session.new").write_text(f"{{os.getsid(0)}} {{os.getpid()}}")
(here / "session.new").rename(here / "session")
while True: signal.pause()
"""
    slept = []

    def stay(seconds: float) -> None:
        slept.append(seconds)
        os.kill(pid(), 0)  # it is alive
        assert not (tmp_path / "goodbye").exists()

    def pid() -> int:
        session, process = map(int, (tmp_path / "session").read_text(encoding="utf-8").split())
        assert session == process  # Ctrl-C does not reach it
        return process

    @contextmanager
    def ctrl_c() -> Iterator[None]:
        while not (tmp_path / "session").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(serving, "terminable", ctrl_c)
    monkeypatch.setattr(serving, "time", SimpleNamespace(sleep=stay))
    monkeypatch.setattr(serving, "GOODBYE", 0.1 if deaf else 60.0)
    with pytest.raises(KeyboardInterrupt):
        serving._run([sys.executable, "-c", node], dict(os.environ))
    assert slept == [serving.LINGER]
    assert (tmp_path / "goodbye").exists() is not deaf
    with pytest.raises(ProcessLookupError):
        os.kill(pid(), 0)


def test_children_are_found_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        if shutil.which("ps"):
            assert child.pid in children(os.getpid(), tmp_path)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(UndriftError, match=r"nor told by the command ps .*; install ps"):
            children(os.getpid(), tmp_path)
        child.communicate(b"\n")


def test_a_node_needs_the_servers_port(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")
    with pytest.raises(UndriftError, match="fl: give the server as HOST:PORT"):
        next(join("fl", tmp_path, tmp_path, tmp_path, {}))


def test_a_deployment_without_keys_is_not_served(tmp_path: Path) -> None:
    folder = DeploymentFolder.make(tmp_path / "ward")
    with pytest.raises(UndriftError, match="has no keys; make them with `undrift deploy keys"):
        next(serve(folder, LOOPBACK, 1))


def test_an_experiment_is_read_before_it_is_served(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed (undrift[flower])")
    folder = DeploymentFolder.make(tmp_path / "ward")
    text = folder.experiment.read_text(encoding="utf-8")
    folder.experiment.write_text(text.replace("AdaBest(mu=0.02, beta=0.9)", "./mine.py:Half"))
    keys.make_authority(folder.keys)
    keys.make_server(folder.keys, [])
    keys.make_node(folder.keys, "node-1")
    with pytest.raises(UndriftError, match=r"line \d: \./mine\.py is not in .*ward; put it there"):
        next(serve(folder, LOOPBACK, 1))


def test_a_deployment_is_served_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed (undrift[flower])")
    folder = DeploymentFolder.make(tmp_path / "ward")
    keys.make_authority(folder.keys)
    keys.make_server(folder.keys, [])
    keys.make_node(folder.keys, "node-1")
    monkeypatch.setattr(serving, "GOODBYE", 0.0)
    for place in (folder.flower, folder.run):  # of another `serve`, and of a server that it left
        with (
            closing(Lock(place)),
            pytest.raises(UndriftError, match=f"{place} is in use by process {os.getpid()}"),
        ):
            next(serve(folder, LOOPBACK, 1))


def test_free_ports_are_not_those_of_outgoing_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(1024 <= free_port() < 32768 for _ in range(20))
    monkeypatch.setattr(processes, "LOOPBACK", "192.0.2.1")  # an address that no machine has
    with pytest.raises(UndriftError, match="none of 100 ports"):
        free_port()


def test_a_superlink_whose_port_is_taken_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")
    folder = DeploymentFolder.make(tmp_path / "ward")
    keys.make_authority(folder.keys)
    keys.make_server(folder.keys, [])
    with socket.create_server((LOOPBACK, 0)) as taken:
        monkeypatch.setattr(processes, "free_port", lambda: taken.getsockname()[1])
        with pytest.raises(UndriftError, match=r"superlink has ended.*address already in use"):
            Link(folder)


def test_what_is_open_on_the_machine(tmp_path: Path) -> None:
    """Of a real SuperLink and gate: their environment, their sockets, and what passes."""
    pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")
    import httpx

    folder = DeploymentFolder.make(tmp_path / "ward")
    keys.make_authority(folder.keys)
    keys.make_server(folder.keys, [])
    keys.make_node(folder.keys, "node-1")
    with Link(folder) as link:
        first = link.register(["node-1"])
        assert link.register(["node-1"]) == first
        port = free_port()
        link.open_gate(LOOPBACK, port)
        for _, process in link._processes:
            told = Path(f"/proc/{process.pid}/environ").read_text(encoding="utf-8").split("\0")
            assert {f"{name}={value}" for name, value in SAFE.items()} <= set(told)
        sockets = Path("/proc/net/tcp").read_text(encoding="utf-8")
        listening = re.findall(r"\d+: ([0-9A-F]{8}):([0-9A-F]{4}) \S+ 0A", sockets)
        here = {int(p, 16): host for host, p in listening if int(p, 16) in (link.port, port)}
        assert set(here.values()) == {"0100007F"}
        trusted = ssl.create_default_context(cafile=str(keys.certificate(folder.keys)))
        transport = httpx.HTTPTransport(verify=trusted, retries=20)
        with httpx.Client(transport=transport, timeout=30) as client:
            for path in ("/v1/control/start-run", "/v1/control/list-nodes", "/health"):
                assert client.post(f"https://{LOOPBACK}:{port}{path}").status_code == 404
            answer = client.post(f"https://{LOOPBACK}:{port}/v1/fleet/register-node")
            assert answer.status_code != 404
        pids = [process.pid for _, process in link._processes]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids if pid != os.getpid())


@pytest.mark.slow
def test_a_whole_deployment_has_the_bits_of_the_simulation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")
    main(["deploy", "check"])
    told = capsys.readouterr().out
    assert "killed node-3" in told
    assert "the same bits as the simulation" in told
