"""`serve` and `join`: a deployment's server, and a device that takes part in it."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

from undrift.config import UndriftError, own
from undrift.deploy import keys
from undrift.deploy.folder import DeploymentFolder, beside
from undrift.deploy.processes import (
    GOODBYE,
    Link,
    environment,
    free_port,
    supernode_command,
    tied,
)
from undrift.experiment.experiment import Experiment
from undrift.system.extras import require
from undrift.system.files import writing
from undrift.system.lock import Lock, holder
from undrift.system.signals import terminable

LOOK = 0.5
"""seconds between two looks at what the server says"""
AGAIN = 15.0
"""seconds before a node that ended starts again"""
LINGER = 3.0
"""seconds that a node stays before it says goodbye: Flower drops an upload that the server has not
read by then, and the server looks every second"""
AHEAD, BEHIND = 5.0, 300.0
"""seconds that a device's clock may be wrong; Flower refuses it beyond that"""
SILENCE = 20.0
"""seconds without a server process before Flower is asked what became of the run"""


def serve(folder: DeploymentFolder, host: str, port: int) -> Iterator[str]:
    """Serve a deployment until its experiment is done; yields what the server says.

    It goes on where it stopped, if it ran before.
    """
    names = keys.nodes(folder.keys) if folder.keys.is_dir() else []
    if not names or not keys.certificate(folder.keys, keys.SERVER).exists():
        raise UndriftError(
            f"{folder.path} has no keys; make them with `undrift deploy keys {folder.path}`"
        )
    with own.finding(partial(beside, folder.path)):
        Experiment.from_toml(folder.experiment)  # tells what is wrong with it
    with closing(Lock(folder.flower)):
        _await_end(folder)
        yield from _serve(folder, names, host, port)


def _await_end(folder: DeploymentFolder) -> None:
    """Wait for the server process of a `serve` that was killed; raise if it stays."""
    end = time.monotonic() + GOODBYE
    while (running := holder(folder.run)) is not None:
        if time.monotonic() > end:
            raise UndriftError(f"{folder.run} is in use by process {running}; stop it first")
        time.sleep(LOOK)


def _serve(folder: DeploymentFolder, names: Sequence[str], host: str, port: int) -> Iterator[str]:
    with Link(folder) as link:
        numbers = link.register(names)
        link.open_gate(host, port)
        for run, state in link.runs().items():
            if not state.startswith("finished"):
                link.stop_run(run)  # its server is gone
        with writing(folder.messages):
            folder.messages.touch()
        said = folder.messages.stat().st_size
        run = link.start_run(
            {
                "out": str(folder.run),
                "home": str(folder.path),
                "clients": json.dumps(names),
                "nodes": json.dumps({str(number): i for i, number in enumerate(numbers)}),
            }
        )
        yield f"serving {len(names)} nodes on {host}:{port}"
        try:
            yield from _follow(folder, link, run, said)
        except BaseException:
            link.stop_run(run)
            raise


def _follow(folder: DeploymentFolder, link: Link, run: str, said: int) -> Iterator[str]:
    """What the server of a run says, until it is done; raises if it stops before."""
    alive = time.monotonic()
    with folder.messages.open(encoding="utf-8") as file:
        file.seek(said)
        while True:
            for line in file:
                text = line.strip()
                if text == "done":
                    return
                if text.startswith("stopped: "):
                    raise UndriftError(text.removeprefix("stopped: "))
                yield text
            link.check()
            if holder(folder.run) is not None:
                alive = time.monotonic()
            elif time.monotonic() - alive > SILENCE:
                state = link.runs().get(run, "unknown")
                if state.startswith("finished"):
                    raise UndriftError(
                        f"the server ended without a result ({state}); see {folder.flower}"
                    )
                alive = time.monotonic()
            time.sleep(LOOK)


def join(
    superlink: str, key: Path, trusted: Path, state: Path, config: Mapping[str, Any]
) -> Iterator[str]:
    """Take part in a deployment until stopped; yields what is worth knowing.

    state   folder for client memory, which must survive restarts
    config  settings for `load`

    A SuperNode that is refused ends. One that was killed and starts again is refused for a minute,
    as the server still counts on the one before. So it is started again and again.
    """
    require("flwr", "flower", "undrift deploy join")
    if not re.fullmatch(r"\S+:\d+", superlink):
        raise UndriftError(
            f"{superlink}: give the server as HOST:PORT, such as fl.example.org:9092"
        )
    for path, what in (key, "private key"), (trusted, "authority's certificate"):
        if not path.is_file():
            raise UndriftError(f"{path}: no such file; give the {what} that the operator gave you")
    if key.stat().st_mode & 0o077 and os.name != "nt":
        raise UndriftError(f"others may read {key}; `chmod 600` it")
    with writing(state):
        state.mkdir(parents=True, exist_ok=True)
    place = state.resolve()
    settings = {**config, "state": str(place)}
    while True:
        command = supernode_command(
            superlink, key.resolve(), trusted.resolve(), free_port(), settings
        )
        code = _run(command, environment(place / "flower"))
        yield (
            f"the node ended with code {code}, and starts again in {AGAIN:.0f} seconds: "
            f"{_reason(superlink, trusted)}"
        )
        time.sleep(AGAIN)


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a SuperNode to its end, or until this process is told to end.

    Its session is its own, so that Ctrl-C does not reach it before it may go.
    """
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **tied(),
    )
    try:
        with terminable():
            return process.wait()
    finally:
        if process.poll() is None:
            time.sleep(LINGER)
            process.send_signal(signal.SIGINT)  # as Ctrl-C, at which it says goodbye to the server
            try:
                process.wait(GOODBYE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _reason(superlink: str, trusted: Path) -> str:
    """Why a SuperNode has ended, as far as the server's gate tells: Flower does not."""
    import httpx

    try:
        verify = ssl.create_default_context(cafile=str(trusted))
        got = httpx.get(f"https://{superlink}", verify=verify, timeout=GOODBYE, trust_env=False)
    except (httpx.HTTPError, OSError) as error:
        return f"{superlink} does not answer ({error})"
    late = (parsedate_to_datetime(got.headers["date"]) - datetime.now(UTC)).total_seconds()
    if not -AHEAD < late < BEHIND:
        side = "behind" if late > 0 else "ahead of"
        return f"the clock of this device is {abs(late):.0f} seconds {side} the server's; set it"
    return (
        "if the server refused it, its key is not registered, or another node has the same key; "
        "within a minute after a crash, that one is the node that crashed"
    )
