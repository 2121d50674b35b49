"""Prints examples of commands with their output, as JSON, while the documentation is built."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from undrift.cli.app import main

ROOT = Path(__file__).parent.parent
HOME = "/home/you"
MOST = 32
"""most lines of output that are shown"""

SESSIONS = {
    "compare": "fedavg adabest --epochs 5 --batch-size 14 --rounds 40 --target .5 --out runs/first",
    "run": "examples/demo.toml --set rounds=40 --set target=0.5 --set seeds=[0] --out runs/second",
    "resume": "runs/first",
    "extend": "runs/first --rounds 50",
    "fork": 'runs/first --at 20 --source FedAvg --algorithm "FedProx(mu=0.1)" --out fork',
    "verify": "runs/first runs/second",
    "report": "runs/first runs/second --out both",
    "ls": "",
    "show": "runs/first",
    "diff": "runs/first runs/second",
    "cite": "runs/second",
    "profile": "examples/demo.toml --rounds 5",
    "tune": "fedavg --over local.lr=0.03,0.1,0.3 --search grid --rounds 20 --out runs/tuned",
    "sweep": "fedprox --over FedProx.mu=0.01,0.1,1 --rounds 20 --seeds 1 --out runs/swept",
    "cost": "adabest scaffold --parameters 91226",
    "paper list": "adabest/table*",
    "paper show": "fedgbo/table9",
    "paper run": "fedglad/figure5 --cells mnist --scale smoke",
    "paper report": "fedgbo/table4",
    "data list": "",
    "data where": "",
    "data show": "digits",
    "partition show": '--partition "Dirichlet(clients=8, alpha=0.1)"',
    "list": "samplers",
    "export": "runs/first --algorithm AdaBest --seed 0 --out model.safetensors",
    "new": "algorithm Half",
    "check": "./half.py:Half",
    "conform": "./examples/own_adapter.py:Mine --method scaffold",
    "deploy init": "hospital",
    "deploy keys": "hospital --nodes 3 --host fl.example.org",
    "prune": "--all runs/first",
    "rm": "runs/second --yes",
}
"""what to type after a command, in the order in which it is typed"""

SILENT = {
    "demo": "about a minute; it prints what `compare` does",
    "watch": "a page in the browser, until Ctrl-C",
    "data fetch": "needs the network",
    "paper collect": "needs runs; it prints what `paper run` does at its end",
    "paper verify": "needs the data of the papers",
    "deploy check": "three minutes; its page tells what it prints",
    "deploy serve": "it serves devices, until the experiment is done",
    "deploy join": "it runs on a device, until Ctrl-C",
    "deploy status": "needs a deployment that has begun",
    "deploy forgive": "needs a client that has lost its memory",
}
"""commands without an example, and why"""


def sessions() -> Iterator[tuple[str, str]]:
    """Each command with its example and what it prints, in a folder of its own."""
    with tempfile.TemporaryDirectory() as made, chdir(made):
        shutil.copytree(ROOT / "examples", "examples")
        shown = {"COLUMNS": "96", "UNDRIFT_DATA_DIR": f"{HOME}/data"}
        with mock.patch.dict(os.environ, shown):
            for command, arguments in SESSIONS.items():
                line = f"undrift {command} {arguments}".strip()
                output = _output(shlex.split(line)[1:]).replace(made, HOME)
                yield command, f"$ {line}\n{_shortened(output)}"


def _output(words: list[str]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            main(words)
        except SystemExit as end:
            if end.code == 2:
                raise RuntimeError(f"undrift {shlex.join(words)}: {printed.getvalue()}") from None
    return printed.getvalue()


def _shortened(output: str) -> str:
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return "\n".join([*lines[:MOST], "..."] if len(lines) > MOST else lines)


if __name__ == "__main__":
    json.dump(dict(sessions()), sys.stdout)
