"""undrift beside other federated simulators, each on its own engine in its own environment.

    python -m benchmarks.peers --work W1 W2 --rounds 5 --repetitions 3

Every contestant runs in a process of its own, and all take turns: naive, ours, peers, naive, ...
Medians over all rounds but the first of each process. Read the ratios, not the seconds: each is to
the naive loop of the same session. What a session does not measure stays in the results.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.work import CLIENTS, WORKS, Work, family

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"
VISION = "torchvision==0.28.0"

ENVIRONMENTS: dict[str, list[list[str]]] = {
    # arguments of `pip install`, one call after the other
    "flower": [["flwr==1.41.0", "ray==2.55.1", TORCH]],
    "pfl": [["pfl==0.6.0", TORCH]],
    "fedjax": [["fedjax==0.0.17", "jax==0.10.2", "jaxlib==0.10.2"]],
    "fedlab": [["fedlab==1.3.0", TORCH, VISION]],
    "fluke": [["fluke-fl==0.8.1", TORCH, VISION]],
    "fedsim": [  # it asks for `sklearn`, a package that refuses to be installed
        [TORCH, VISION, "scikit-learn", "scikit-optimize", "tqdm", "tensorboard", "pyyaml"],
        ["click", "logall"],
        ["--no-deps", "fedsim==0.9.0"],
    ],
}


@dataclass(frozen=True)
class Contestant:
    """A script of this folder, the environment it runs in (None: ours), and its set-up."""

    script: str
    environment: str | None
    setup: str

    def __str__(self) -> str:
        return f"{self.environment or self.script}, {self.setup}"


CONTESTANTS = [
    Contestant("naive", None, "1 thread"),
    Contestant("ours", None, "1 thread in 2 workers"),
    Contestant("flower", "flower", "1 thread in 2 actors"),
    Contestant("pfl_research", "pfl", "1 thread"),
    Contestant("pfl_research", "pfl", "2 threads"),
    Contestant("pfl_research", "pfl", "1 thread in 2 processes"),
    Contestant("fedjax_", "fedjax", "jit"),
    Contestant("fedjax_", "fedjax", "pmap on 2 devices"),
    Contestant("fedlab_", "fedlab", "1 thread"),
    Contestant("fedlab_", "fedlab", "2 threads"),
    Contestant("fluke_", "fluke", "1 thread"),
    Contestant("fluke_", "fluke", "2 threads"),
    Contestant("fedsim_", "fedsim", "1 thread"),
    Contestant("fedsim_", "fedsim", "2 threads"),
    Contestant("naive", None, "2 threads"),
]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def last_words(output: str) -> str:
    """What a failed command said: its last line that names an error, or its last line."""
    lines = [line.strip() for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("note:", "WARNING:"))]
    pattern = re.compile(r"(?i)error:(?! subprocess-exited)|deprecated, use")
    errors = [line for line in lines if pattern.search(line)]
    return (errors or lines or ["it said nothing"])[-1][:300]


def install(name: str, envs: Path) -> str | None:
    """Make an environment, unless it is there. Returns why it could not be made."""
    folder, ready = envs / name, envs / name / ".ready"
    wanted = json.dumps(ENVIRONMENTS[name])
    if ready.exists() and ready.read_text() == wanted:
        return None
    say(f"installing {name} in {folder} ...")
    venv.create(folder, with_pip=True)
    for packages in ENVIRONMENTS[name]:
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", *packages]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            (envs / f"{name}.log").write_text(done.stderr)
            return f"cannot be installed: {last_words(done.stderr)} (more in {name}.log)"
    ready.write_text(wanted)
    return None


def run(contestant: Contestant, work: Work, rounds: int, envs: Path, patience: float) -> dict:
    """Run a contestant once. Returns what it reports, or why it failed."""
    name = contestant.environment
    python = envs / name / "bin" / "python" if name else Path(sys.executable)
    script = HERE / f"{contestant.script}.py"
    command = [python, script, work.name, "--rounds", str(rounds), "--setup", contestant.setup]
    outside = {"PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS"}
    environment = {k: v for k, v in os.environ.items() if k not in outside}
    load = os.getloadavg()[0]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        output, errors = child.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        for pid in list(family(child.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.communicate()
        return {"failed": f"not done after {patience:.0f} s"}
    reports = [line for line in output.splitlines() if line.startswith('{"library"')]
    if child.returncode or not reports:
        return {"failed": last_words(errors)}
    return json.loads(reports[-1]) | {"load before": round(load, 2)}


def machine() -> dict[str, object]:
    """What it was measured on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def summary(contestant: Contestant, runs: list[dict]) -> dict:
    """One row of the table: medians over everything a contestant did."""
    good = [run for run in runs if "failed" not in run]
    if not good:
        return {"contestant": str(contestant), "failed": runs[-1]["failed"]}
    seconds = [second for run in good for second in run["seconds"]]
    rows = {key: statistics.median(run[key] for run in good) for key in ("startup", "megabytes")}
    return {
        "contestant": f"{good[0]['library']} {good[0]['version']}, {contestant.setup}",
        "seconds": statistics.median(seconds),
        "steps": sorted({step for run in good for step in run["steps"]}),
        "steps by decay": statistics.median(s for run in good for s in run["steps by decay"]),
        "startup": rows["startup"] + statistics.median(run["shutdown"] for run in good),
        "megabytes": rows["megabytes"],
    }


def measured(runs: dict[Contestant, list[dict]], date: str) -> dict[str, Any]:
    """What a session found out about a workload: the rows of the table, and all runs."""
    rows = [summary(contestant, done) for contestant, done in runs.items()]
    naive = next(row["seconds"] for row in rows if "naive" in row["contestant"])
    return {
        "table": [row | {"date": date, "naive": naive} for row in rows],
        "runs": {str(contestant): done for contestant, done in runs.items()},
    }


def merge(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The results of a workload: those of now, and of contestants that did not run, from before."""
    rows: dict[str, dict] = {}
    for part in (before, now):
        rows |= zip(part["runs"], part["table"], strict=True)
    return {"table": list(rows.values()), "runs": before["runs"] | now["runs"]}


def table(work: Work, rows: list[dict]) -> str:
    """All rows as Markdown, the fastest first."""
    lines = [
        f"{work.name}: {work.about}, {CLIENTS} clients, {work.epochs} epochs: "
        f"{CLIENTS * work.steps} steps a round",
        "",
        "| contestant | s / round | x naive | steps | by decay | MB | start and stop, s |",
        "|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for row in sorted(rows, key=lambda row: row.get("seconds", float("inf"))):
        if "failed" in row:
            lines.append(f"| {row['contestant']} | {row['failed']} | | | | | |")
            continue
        steps, ratio = ", ".join(map(str, row["steps"])), row["naive"] / row["seconds"]
        lines.append(
            f"| {row['contestant']} | {row['seconds']:.3f} | {ratio:.2f} | {steps} "
            f"| {row['steps by decay']:.0f} | {row['megabytes']:.0f} | {row['startup']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of W1 in a process")
    parser.add_argument("--repetitions", type=int, default=3, help="how often all take turns")
    parser.add_argument("--only", nargs="+", help="scripts to run, beside naive")
    parser.add_argument("--envs", type=Path, default=HERE / ".envs", help="the environments")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--patience", type=float, default=900, help="seconds for one process")
    given = parser.parse_args()
    envs = given.envs.absolute()
    some = [c for c in CONTESTANTS if not given.only or c.script in {"naive", *given.only}]

    needed = dict.fromkeys(c.environment for c in some if c.environment)
    reasons = {name: install(name, envs) for name in needed}
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    results |= {"date": date, "machine": machine(), "environments": ENVIRONMENTS}
    for work in (WORKS[name] for name in given.work):
        rounds = given.rounds if work.name == "W1" else max(1, given.rounds // 3)
        runs: dict[Contestant, list[dict]] = {c: [] for c in some}
        for repetition in range(given.repetitions):
            for contestant, sofar in runs.items():
                reason = reasons.get(contestant.environment)
                if reason:
                    sofar.append({"failed": reason})
                elif not (sofar and "failed" in sofar[-1]):
                    sofar.append(run(contestant, work, rounds, envs, given.patience))
                news = sofar[-1].get("failed") or f"{sofar[-1]['seconds']} s"
                say(f"{work.name} {repetition + 1}/{given.repetitions} {contestant}: {news}")
        now = measured(runs, date)
        results[work.name] = merge(results.get(work.name, {"table": [], "runs": {}}), now)
        given.out.write_text(json.dumps(results, indent=1) + "\n")
        print(table(work, results[work.name]["table"]), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
