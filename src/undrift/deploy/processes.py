"""Flower's own commands as processes, with safe settings that nobody would set by hand."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.deploy import keys
from undrift.deploy.folder import LOOPBACK, DeploymentFolder
from undrift.system.extras import require
from undrift.system.files import replace_file, writing

BIN = Path(sys.executable).parent
PATIENCE = 120.0
"""seconds that a SuperLink may take to start"""
GOODBYE = 15.0
"""seconds that a process may take to end"""
COLOUR = re.compile(r"\x1b\[[\d;]*m")
"""what a log has to colour a terminal"""


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's processes, whose own files go to `home`.

    Telemetry posts facts about the machine at every start of a process, and an update check is
    another request; both are on by default. So is installing an app's dependencies from the package
    index at run time.
    """
    return {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def superlink_command(folder: DeploymentFolder, port: int) -> list[str]:
    """The SuperLink, which listens on loopback alone."""
    return [
        str(BIN / "flower-superlink"),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--ssl-ca-certfile", str(keys.certificate(folder.keys))),
        *("--ssl-certfile", str(keys.certificate(folder.keys, keys.SERVER))),
        *("--ssl-keyfile", str(keys.private_key(folder.keys))),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--database", str(folder.flower / "state.db")),
    ]


def gate_command(folder: DeploymentFolder, host: str, port: int, superlink: int) -> list[str]:
    """The gate in front of the SuperLink."""
    return [
        *(sys.executable, "-m", "undrift.deploy.gate"),
        *(host, str(port), f"https://{LOOPBACK}:{superlink}", str(folder.keys)),
    ]


def supernode_command(
    superlink: str, key: Path, trusted: Path, port: int, config: Mapping[str, Any]
) -> list[str]:
    """The SuperNode of a device."""
    settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    return [
        str(BIN / "flower-supernode"),
        *("--superlink", superlink),
        *("--root-certificates", str(trusted)),
        *("--auth-supernode-private-key", str(key)),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--node-config", settings),
    ]


def free_port() -> int:
    """A port of loopback that is free now, and that no connection is given before it is used.

    Systems take the ports of outgoing connections from 32768 on.
    """
    for port in random.SystemRandom().sample(range(20000, 32768), 100):
        with socket.socket() as one, suppress(OSError):
            one.bind((LOOPBACK, port))
            return port
    raise UndriftError(f"none of 100 ports of {LOOPBACK} from 20000 on can be opened")


def tied() -> dict[str, Any]:
    """Options for `Popen`: the process ends when this one does, even by kill -9 (Linux)."""
    if sys.platform != "linux":
        return {}
    import ctypes

    libc, death_signal = ctypes.CDLL(None), 1

    def tie() -> None:
        libc.prctl(death_signal, signal.SIGTERM)

    return {"preexec_fn": tie}


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that was started in a session of its own, and its children with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(GOODBYE)
            except subprocess.TimeoutExpired:
                continue


class Link:
    """A SuperLink and its gate, as processes, and the commands that talk to it."""

    def __init__(self, folder: DeploymentFolder) -> None:
        require("flwr", "flower", "undrift deploy serve")
        self.folder, self.port = folder, free_port()
        self.environment = environment(folder.flower / "home")
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._begun: dict[str, int] = {}  # where in its log a process has begun to write
        config = (
            '[superlink]\ndefault = "here"\n[superlink.here]\n'
            f'address = "{LOOPBACK}:{self.port}"\n'
            f"root-certificates = {json.dumps(str(keys.certificate(folder.keys)))}\n"
        )
        with writing(folder.flower):
            (folder.flower / "home").mkdir(parents=True, exist_ok=True)
            folder.flower.chmod(0o700)
        replace_file(folder.flower / "home" / "config.toml", config.encode())
        try:
            self._start("superlink", superlink_command(folder, self.port))
            self._wait()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End both."""
        for _, process in reversed(self._processes):
            end(process)

    def open_gate(self, host: str, port: int) -> None:
        """Let nodes in; those whose key is not registered yet would be refused, and end."""
        self._start("gate", gate_command(self.folder, host, port, self.port))

    def check(self) -> None:
        """Raise if one of them has ended."""
        for name, process in self._processes:
            if process.poll() is not None:
                raise UndriftError(
                    f"the {name} has ended with code {process.returncode}: {self._last_words(name)}"
                )

    def register(self, names: Sequence[str]) -> list[int]:
        """Register the keys of nodes, unless they are; returns Flower's numbers of the nodes."""
        path = self.folder.flower / "nodes.json"
        known: dict[str, str] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        )
        listed = {one["node-id"] for one in self._flwr("supernode", "list", "here")["nodes"]}
        for name in names:
            if known.get(name) not in listed:
                public = keys.public_key(self.folder.keys, name)
                found = self._flwr("supernode", "register", str(public), "here", "--name", name)
                if not found.get("success"):
                    raise UndriftError(f"the key of {name} cannot be registered: {found}")
                known[name] = str(found["node-id"])
                replace_file(path, json.dumps(known).encode())
        return [int(known[name]) for name in names]

    def start_run(self, config: Mapping[str, Any]) -> str:
        """Start a run of the app; returns its number."""
        path = self.folder.flower / "run.toml"
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in config.items()]
        replace_file(path, "".join(lines).encode())
        found = self._flwr("run", str(self.folder.path), "here", "--run-config", str(path))
        if not found.get("success"):
            raise UndriftError(
                f"Flower does not start the app: {found.get('error-message', found)}"
            )
        return str(found["run-id"])

    def runs(self) -> dict[str, str]:
        """All runs, with their states, such as running or finished:failed."""
        found = self._flwr("list", "here")
        return {one["run-id"]: str(one["status"]) for one in found.get("runs", [])}

    def stop_run(self, run: str) -> None:
        """Stop a run."""
        self._flwr("stop", run, "here")

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder.flower / f"{name}.log").open("ab") as log:
            self._begun[name] = log.tell()
            process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder.flower,
                start_new_session=True,
                **tied(),
            )
        self._processes.append((name, process))

    def _wait(self) -> None:
        """Wait until the SuperLink answers."""
        import httpx

        verify = ssl.create_default_context(cafile=str(keys.certificate(self.folder.keys)))
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.check()
            try:
                address = f"https://{LOOPBACK}:{self.port}/health"
                if httpx.get(address, verify=verify, timeout=5, trust_env=False).is_success:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.3)
        raise UndriftError(f"the superlink does not answer: {self._last_words('superlink')}")

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        """What a `flwr` command prints as JSON."""
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments, "--format", "json"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder.flower,
            check=False,
        )
        start = done.stdout.find("{")
        try:
            found: dict[str, Any] = json.loads(done.stdout[start:]) if start >= 0 else {}
        except ValueError:
            found = {}
        if not found:
            said = (done.stderr or done.stdout).strip()
            raise UndriftError(f"`flwr {' '.join(arguments[:2])}` failed: {said}")
        return found

    def _last_words(self, name: str) -> str:
        """The error at the end of its log, or else the last lines."""
        path = self.folder.flower / f"{name}.log"
        said = path.read_bytes()[self._begun[name] :]
        text = COLOUR.sub("", said.decode("utf-8", errors="replace"))
        lines = [line.strip() for line in text.split("\n") if line.strip()][-10:]
        errors = [line for line in lines if "ERROR" in line]
        return f"{' / '.join(errors[-1:] or lines[-3:]) or 'it said nothing'} ({path})"
