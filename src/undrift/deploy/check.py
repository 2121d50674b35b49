"""A whole deployment on this machine, compared with the simulation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from undrift.config import UndriftError
from undrift.deploy import keys
from undrift.deploy.folder import LOOPBACK, DeploymentFolder
from undrift.deploy.processes import end, free_port, tied
from undrift.deploy.reference import differences
from undrift.experiment.experiment import Experiment
from undrift.runs.layout import RunFile

NODES, VICTIM = 3, 2
USUAL = ("AdaBest(mu=0.02, beta=0.9)", "SCAFFOLD()", "Mime(SGDm())")
AWAY = 15.0
"""seconds that the killed node stays away"""


Verdict = tuple[str, bool]
"""A text, and whether what it says is as it should be."""


def check(
    algorithms: Sequence[str], rounds: int, deadline: float, keep: Path | None = None
) -> Iterator[Verdict]:
    """Deploy a small experiment on loopback, kill a node after the first round, compare."""
    with ExitStack() as stack:
        home = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="undrift-")))
        folder, experiment = _prepare(home / "check", algorithms or USUAL, rounds, deadline)
        port, killed = str(free_port()), False
        server = _start(stack, "serve", str(folder.path), "--port", port)
        nodes = [_join(stack, folder, port, i) for i in range(NODES)]
        assert server.stdout is not None
        for line in server.stdout:
            yield line.strip(), True
            if ", round 1: " in line and not killed:
                killed = True
                _kill(nodes[VICTIM])
                yield f"killed node-{VICTIM + 1}", True
                time.sleep(AWAY)
                _join(stack, folder, port, VICTIM)
                yield f"node-{VICTIM + 1} joins again", True
        if server.wait():
            raise UndriftError("the server failed; its last line says why")
        yield from _verdict(folder, experiment)


def _verdict(folder: DeploymentFolder, experiment: Experiment) -> Iterator[Verdict]:
    lines = (folder.run / RunFile.EXCHANGES).read_text(encoding="utf-8").splitlines()
    exchanges = [json.loads(line) for line in lines]
    asked, absent = (sum(len(one[key]) for one in exchanges) for key in ("asked", "absent"))
    yield f"{asked - absent} of {asked} questions to nodes were answered", absent < asked
    heard = [VICTIM in one["asked"] and str(VICTIM) not in one["absent"] for one in exchanges]
    rounds = {(one["algorithm"], one["round"]) for one in exchanges}
    missed = heard.count(False)
    yield (
        f"the killed node missed {missed} of {len(heard)} exchanges",
        missed > 0 or len(rounds) == 1,
    )
    found = list(differences(experiment, folder.run))
    yield from ((text, False) for text in found)
    if not found:
        yield "the same bits as the simulation: rows, models and buffers", True


def _prepare(
    path: Path, algorithms: Sequence[str], rounds: int, deadline: float
) -> tuple[DeploymentFolder, Experiment]:
    """A deployment with keys, in which each node has the samples of one simulated client."""
    folder = DeploymentFolder.make(path)
    changes = {"algorithms": list(algorithms), "rounds": rounds, "every": 1}
    experiment = Experiment.from_toml(folder.experiment, changes)
    folder.experiment.write_text(experiment.to_toml(), encoding="utf-8")
    app = folder.app.read_text(encoding="utf-8")
    folder.app.write_text(
        re.sub(r"deadline = [\d.]+", f"deadline = {float(deadline)}", app), encoding="utf-8"
    )
    keys.make_authority(folder.keys)
    keys.make_server(folder.keys, [])
    _, data = experiment.prepare(experiment.seeds[0])
    for i in range(NODES):
        keys.make_node(folder.keys, f"node-{i + 1}")
        inputs, targets = data.batch(data.rows(i))
        place = _place(folder, i)
        place.mkdir(parents=True)
        np.savez(place / "samples.npz", inputs=inputs.numpy(), targets=targets.numpy())
    return folder, experiment


def _place(folder: DeploymentFolder, node: int) -> Path:
    """The disk of a node."""
    return folder.path / "nodes" / f"node-{node + 1}"


def _join(
    stack: ExitStack, folder: DeploymentFolder, port: str, node: int
) -> subprocess.Popen[str]:
    place = _place(folder, node)
    key, ca = keys.private_key(folder.keys, f"node-{node + 1}"), keys.certificate(folder.keys)
    with (place / "node.log").open("a", encoding="utf-8") as log:
        return _start(
            stack,
            *("join", f"{LOOPBACK}:{port}", "--key", str(key), "--ca", str(ca)),
            *("--state", str(place / "state"), "--data", str(place / "samples.npz")),
            output=log,
        )


def _start(stack: ExitStack, *arguments: str, output: Any = None) -> subprocess.Popen[str]:
    """A command of `undrift deploy`, as a process that ends with the stack."""
    process = subprocess.Popen(
        [sys.executable, "-m", "undrift", "deploy", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output or subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **tied(),
    )
    stack.callback(end, process)
    return process


def _kill(node: subprocess.Popen[str]) -> None:
    """Kill a node without warning; Flower's processes first, which would notice."""
    for group in (*children(node.pid), node.pid):
        os.killpg(group, signal.SIGKILL)
    node.wait()


def children(process: int, proc: Path = Path("/proc")) -> list[int]:
    """The processes that a process has started; from Linux's /proc, else from the command ps."""
    listed = proc / str(process) / "task" / str(process) / "children"
    if listed.exists():
        return [int(one) for one in listed.read_text(encoding="utf-8").split()]
    try:
        told = subprocess.run(
            ["ps", "-A", "-o", "pid=", "-o", "ppid="], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UndriftError(
            f"a node cannot be killed: its processes are neither in {listed} nor told by the "
            f"command ps ({error}); install ps"
        ) from None
    pairs = (line.split() for line in told.stdout.splitlines())
    return [int(one) for one, parent in pairs if int(parent) == process]
