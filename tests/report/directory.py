"""A small run directory with numbers that can be checked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from undrift.report import read_run, summarise
from undrift.report.page.page import render_page

A, B = "FedAvg()", "AdaBest(mu=0.02, beta=0.96)"
ROUNDS = (5, 10, 15, 20)
Accuracies = dict[tuple[str, int], tuple[float | None, ...]]
ACCURACY: Accuracies = {
    (A, 0): (0.2, 0.5, 0.6, 0.7),
    (A, 1): (0.3, 0.4, 0.5, 0.6),
    (B, 0): (0.4, 0.6, 0.9, 0.8),
    (B, 1): (0.5, 0.7, 0.8, 0.9),
}

THREE: Accuracies = {
    **ACCURACY,
    (A, 2): (0.2, 0.4, 0.5, 0.5),
    (B, 2): (0.5, 0.7, 0.8, 0.994),
}


def make_run(
    folder: Path,
    accuracy: Accuracies = ACCURACY,
    failures: list[dict[str, Any]] | None = None,
    labels: dict[str, str] | None = None,
    empty: tuple[str, ...] = (),
    lists: bool = False,
    test: tuple[int, ...] | None = None,
    **experiment: Any,
) -> Path:
    """A run directory; `empty` names metrics that are null throughout.

    With `lists`, rows tell of parameter groups (B alone), of clients and of validation. With
    `test`, the test samples of each class, balanced accuracies are half of the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for name, _ in accuracy))
    shown = labels or {name: name.split("(")[0] for name in names}
    described = {
        "name": "small",
        "hash": "0123456789ab",
        "data": "digits",
        "partition": "Dirichlet(clients=4, alpha=0.1)",
        "rounds": 20,
        "seeds": sorted({seed for _, seed in accuracy}),
        "algorithms": [{"name": name, "label": shown[name]} for name in names],
        "target": 0.6,
        "every": 5,
        "command": "undrift compare fedavg adabest",
        "version": "0.1.0",
    } | experiment
    rows = []
    for (name, seed), values in accuracy.items():
        for t, value in zip(ROUNDS, values, strict=False):
            row: dict[str, Any] = {
                "algorithm": name,
                "label": shown[name],
                "seed": seed,
                "round": t,
            }
            row |= {"accuracy": value, "loss": 1 / t, "train_loss": 2 / t, "x_norm": 1.0 + t}
            row |= {"cloud_accuracy": value, "cloud_loss": 1 / t, "aggregate_accuracy": value}
            row |= {"aggregate_loss": 1 / t, "all_accuracy": None, "all_loss": None}
            row |= {"h_norm": 0.5 if name == B else None, "h_cosine": 0.1, "drift": 0.2}
            row |= {"gsi": 1.5, "factor": None, "label_similarity": 0.9, "delivered": 2}
            row |= {"dropped": t // 10, "bytes_down": 1000 * t, "bytes_up": 500 * t}
            row |= {"flops": 2e6 * t, "seconds": 0.1 * t}
            if test:
                row["balanced_accuracy"] = value and value / 2
            if lists:
                row |= {"client_accuracy": [k / 10 for k in range(11)], "coverage": t / 20}
                row |= {"client_accuracy_worst": 0.05, "client_accuracy_sd": 0.3}
                row |= {"validation_accuracy": value, "validation_loss": 1 / t}
            if lists and name == B:
                row |= {
                    "factor": 1.5,
                    "group_gsi": [1.0 + t, 2.0 + seed, None],
                    "group_factor": [1.0, 1.1, t],
                }
            rows.append(row | dict.fromkeys(empty))
    (folder / "experiment.json").write_text(json.dumps(described))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "partition.json").write_text(
        json.dumps({"label_counts": [[5, 0], [0, 7], [1, 1], [0, 0]], "test_label_counts": test})
    )
    if failures is not None:
        (folder / "failures.json").write_text(json.dumps(failures))
    return folder


def page_of(folder: Path) -> str:
    run = read_run(folder)
    return render_page(run, summarise(run))
