"""`undrift partition`: who holds what."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from undrift.cli.whole import Whole
from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.data.federated import FederatedData
from undrift.data.files.fetch import use_data_dir
from undrift.data.partition.partitions import PARTITIONS, default_partition, federate
from undrift.data.partition.saved import PartitionFile
from undrift.data.partition.skew import hellinger, label_entropy, total_variation
from undrift.data.sources import dataset
from undrift.later import np
from undrift.system.extras import require

partition_app = App(name="partition", help="See, save and share partitions.")

FIGURES = (".png", ".svg", ".pdf")
ROWS = {
    "sizes": ("samples", 0),
    "classes_per_client": ("classes", 0),
    "entropy": ("label entropy (bits)", 2),
    "total_variation": ("total variation from all labels", 3),
    "hellinger": ("Hellinger distance from all labels", 3),
}
"""What is printed of each client: its name, and digits after the point."""


@partition_app.command
def show(
    *,
    data: str = "digits",
    data_dir: Path | None = None,
    target_column: str | None = None,
    client_column: str | None = None,
    partition: str | None = None,
    seed: Whole = 0,
    save: Path | None = None,
    figure: Path | None = None,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """Show how samples and labels are spread over clients.

    Example: undrift partition show --data digits --partition "Dirichlet(clients=100, alpha=0.1)"
    --save digits.safetensors --figure digits.png

    Parameters
    ----------
    data
        Data set; `undrift list data` shows them. Or the path of your own CSV or Parquet file.
    data_dir
        Folder with the data set's files; without this option they are downloaded.
    target_column
        Column of your file to predict.
    client_column
        Column of your file that says whose a row is.
    partition
        How the samples are shared out among clients; `undrift list partitions`. With
        --client-column Natural() if not given, else Dirichlet(clients=100, alpha=0.1).
    seed
        What the partition is drawn with; run number k of a comparison has seed k.
    save
        File for the partition, to be used as "Saved('FILE')"; in a folder it is named by its hash.
    figure
        File for a picture of the classes of each client: .png, .svg or .pdf.
    json_
        Print JSON.
    """
    if seed < 0:
        raise UndriftError(f"--seed {seed}: must be a whole number >= 0")
    if figure is not None and figure.suffix not in FIGURES:
        raise UndriftError(f"--figure {figure}: must end in {', '.join(FIGURES)}")
    use_data_dir(data_dir)
    source = dataset(data, target_column, client_column)
    how = parse(partition or default_partition(client_column), PARTITIONS, "partition")
    federated = federate(source, how, seed)
    parts = np.split(federated.order, federated.offsets[1:-1])
    about = f"{source!r}, {how!r}, seed {seed}"
    file = PartitionFile.of(parts, federated.targets.cpu().numpy(), about)
    facts: dict[str, Any] = {"data": repr(source), "partition": repr(how), "seed": seed}
    facts |= {"hash": file.hash} | summary(federated)
    if figure is not None:
        if "classes" not in facts:
            raise UndriftError(f"--figure {figure}: the samples of these data have no classes")
        facts["figure"] = str(_drawn(federated, figure))
    if save is not None:
        facts["saved"] = str(file.save(save))
    if json_:
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")
    else:
        _print(facts, Console(highlight=False))


def summary(federated: FederatedData) -> dict[str, Any]:
    """Numbers that say how clients differ; labels count where every sample has one class."""
    targets = federated.targets
    facts: dict[str, Any] = {
        "clients": len(federated),
        "samples": len(targets),
        "unused_samples": len(targets) - int(federated.sizes.sum()),
        "clients_without_samples": int((federated.sizes == 0).sum()),
        "sizes": _spread(federated.sizes),
    }
    if federated.client_names is not None:
        facts["samples_of"] = dict(
            zip(federated.client_names, federated.sizes.tolist(), strict=True)
        )
    if targets.ndim > 1 or targets.is_floating_point():
        return facts
    counts = federated.label_counts
    return facts | {
        "classes": counts.shape[1],
        "classes_per_client": _spread((counts > 0).sum(axis=1)),
        "entropy": _spread(label_entropy(counts)),
        "total_variation": _spread(total_variation(counts)),
        "hellinger": _spread(hellinger(counts)),
    }


def _spread(values: np.ndarray) -> dict[str, float | None]:
    """Smallest, median, mean and largest of the values that are numbers."""
    known = values[np.isfinite(values)]
    if not len(known):
        return dict.fromkeys(("min", "median", "mean", "max"))
    return {
        "min": float(known.min()),
        "median": float(np.median(known)),
        "mean": float(known.mean()),
        "max": float(known.max()),
    }


def _drawn(data: FederatedData, path: Path) -> Path:
    from undrift.report.figures import write_partition
    from undrift.runs.reading import LabelCounts

    require("matplotlib", "report", "--figure")
    names = data.client_names or (), data.class_names or ()
    write_partition(LabelCounts(data.label_counts, *names), path)
    return path


def _print(facts: dict[str, Any], console: Console) -> None:
    what = f"{facts['data']}, {facts['partition']}, seed {facts['seed']}"
    console.print(what, markup=False, soft_wrap=True)
    used = facts["samples"] - facts["unused_samples"]
    console.print(
        f"{facts['clients']:,} clients with {used:,} of {facts['samples']:,} samples; "
        f"{facts['clients_without_samples']:,} clients without any; partition {facts['hash']}",
        soft_wrap=True,
    )
    table = Table("of a client", box=None, pad_edge=False)
    for name in ("min", "median", "mean", "max"):
        table.add_column(name, justify="right")
    for key, (name, digits) in ROWS.items():
        if key in facts:
            table.add_row(name, *(_number(value, digits) for value in facts[key].values()))
    console.print(table)
    if samples := facts.get("samples_of"):
        few, many = min(samples, key=samples.__getitem__), max(samples, key=samples.__getitem__)
        console.print(
            f"the smallest client is {few}, the largest {many}", markup=False, soft_wrap=True
        )
    for key in ("saved", "figure"):
        if key in facts:
            console.print(f"{key}: {facts[key]}", markup=False, soft_wrap=True)


def _number(value: float | None, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value.is_integer() and not digits else f"{value:,.{digits or 1}f}"
