"""One round of each engine beside the same round as a plain PyTorch loop, in turn: `make bench`.

    python -m benchmarks [W1 W4 ...] [--repetitions N] [--epochs N] [--json] [--check]

measures the named workloads (all without names), replaces their part of results/engines.json and
prints the tables; --check fails where one of them is slower than it must be. The rules and the time
of import are measured along with W1. Read the ratios, which come from one run each; seconds depend
on the machine and its mood.
"""

from __future__ import annotations

import json as text
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cyclopts
import torch

from benchmarks.contestants import RULES, player, present, workers
from benchmarks.measure import (
    Sgemm,
    circumstances,
    count_flop,
    fresh,
    interleave,
    load_results,
    store_results,
)
from benchmarks.tables import below_must, engine_tables, fastest
from benchmarks.workloads import WORKLOADS, Workload, naive

IMPORTS = 7
"""New processes in which the import is timed."""


def measure_engines(work: Workload, repetitions: int) -> dict[str, Any]:
    """A workload with the naive loop and every engine, and the sgemm peak between them."""
    data = work.data()
    model, _ = work.models()
    clients = [data.client(i) for i in range(len(data))]
    runs: dict[str, Callable[[], int]] = {"naive": lambda: naive(work, model, clients)}
    runs |= {engine: player(work, engine, data) for engine in present()}
    steps = {name: run() for name, run in runs.items()}
    assert set(steps.values()) == {work.steps}, f"{work.name}: unequal work, {steps}"
    peaks = {f"sgemm {count}": Sgemm(count) for count in (1, 2)}
    seconds = interleave(runs | peaks, repetitions, work.name)
    rates = {
        name: [round(peak.flop / 1e9 / one, 2) for one in seconds.pop(name)]
        for name, peak in peaks.items()
    }
    return {
        **circumstances(),
        "about": work.about,
        "parameters": sum(p.numel() for p in model.parameters()),
        "clients": work.clients,
        "epochs": work.epochs,
        "steps": work.steps,
        "gflop": round(count_flop(work) / 1e9, 3),
        "must": work.must,
        "aim": work.aim,
        "gflop/s": rates,
        "seconds": seconds,
        "workers": {engine: workers(engine) for engine in present()},
    }


def measure_alone(work: Workload) -> dict[str, Any]:
    """Every engine in a process of its own."""
    code = "from benchmarks.alone import alone; alone({!r}, {!r})"
    return {engine: fresh(code.format(work.name, engine)) for engine in present()}


def measure_rules(work: Workload, engine: str, repetitions: int) -> dict[str, Any]:
    """Every rule on one engine."""
    data = work.data()
    runs = {name: player(work, engine, data, rule) for name, rule in RULES.items()}
    steps = {name: run() for name, run in runs.items()}
    assert set(steps.values()) == {work.steps}, f"rules: unequal work, {steps}"
    seconds = interleave(runs, repetitions, f"rules on {engine}")
    return {**circumstances(), "engine": engine, "epochs": work.epochs, "seconds": seconds}


def measure_imports() -> dict[str, Any]:
    """Importing torch and undrift, in new processes."""
    code = "import json; from benchmarks.alone import imports; print(json.dumps(imports()))"
    return {**circumstances(), "seconds": [fresh(code) for _ in range(IMPORTS)]}


def main(
    *names: str,
    repetitions: int = 5,
    epochs: int | None = None,
    json: bool = False,
    check: bool = False,
) -> None:
    """Measure and print.

    Parameters
    ----------
    names
        Workloads, or the beginnings of their names; all if none is given.
    repetitions
        How often every contestant runs; more often if that takes less than five seconds.
    epochs
        Passes over the data in each of them, in place of their own.
    json
        Print the results as JSON in place of tables.
    check
        Exit with 1 if the fastest engine does not reach the `must` of a measured workload.
    """
    torch.set_num_threads(1)
    chosen = [work for name, work in WORKLOADS.items() if not names or name.startswith(names)]
    if not chosen:
        raise SystemExit(f"{' '.join(names)}: no such workload; there are {', '.join(WORKLOADS)}")
    measured = {}
    for work in chosen:
        if epochs is not None:
            work = replace(work, local=replace(work.local, epochs=epochs))
        result = measure_engines(work, repetitions) | {"alone": measure_alone(work)}
        measured[work.name] = result
        store_results("engines", {work.name: result})
        if work.name == "W1":
            rules = measure_rules(work, fastest(result), repetitions)
            store_results("engines", {"rules": rules, "imports": measure_imports()})
    results = load_results("engines")
    print(text.dumps(results, indent=1) if json else engine_tables(results))
    if check and (slow := below_must(measured)):
        raise SystemExit("\n".join(slow))


if __name__ == "__main__":
    cyclopts.run(main)
