"""Short federated runs on real data: each must learn something clearly above chance.

    python -m benchmarks.learning FOLDER

runs the settings whose files are in FOLDER, replaces their rows in `learning.json` and writes the
table of docs/learning.md from it. These are smoke tests of the data, not results to quote: a few
rounds, one seed, and subsets where the folder has subsets.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.data.files.fetch import use_data_dir
from undrift.data.partition.partitions import PARTITIONS
from undrift.data.sources import dataset
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import algorithm
from undrift.federation.sampling import Uniform
from undrift.runs.trial import Trial
from undrift.training.work import Local

RESULTS = Path(__file__).parent / "learning.json"
PAGE = Path(__file__).parent.parent / "docs" / "learning.md"


@dataclass(frozen=True)
class Setting:
    """One run; `folder` is where its files may lie below the given one."""

    data: str
    partition: str
    model: str
    folder: str = "."
    algorithm: str = "AdaBest(mu=0.02, beta=0.8)"
    lr: float = 0.1
    batch_size: int = 32
    steps: int | None = None
    rounds: int = 30
    clients: int = 10
    above: float = 2.0
    """accuracy to reach, as a multiple of what always naming the commonest class gives"""

    def experiment(self) -> Experiment:
        return Experiment(
            algorithms=(algorithm(self.algorithm),),
            data=dataset(self.data),
            partition=parse(self.partition, PARTITIONS, "partition"),
            model=self.model,
            local=Local(lr=self.lr, batch_size=self.batch_size, steps=self.steps),
            sampler=Uniform(self.clients),
            rounds=self.rounds,
            every=self.rounds,
        )


SETTINGS = [
    Setting("mnist", "DirichletTotal(clients=100, alpha=1.0)", "mlp", above=5.0),
    Setting(
        "emnist-letters", "Dirichlet(clients=100, alpha=0.3)", "mlp", "emnist-letters-subset",
        above=8.0,
    ),
    Setting(
        "cifar100", "Pachinko(clients=500)", "FedGBOCNN", steps=10, rounds=100,
        algorithm="FedGBO(SGDm())", above=4.0,
    ),
    Setting(
        "shakespeare", "Natural()", "FedGBOGRU", steps=20, rounds=40, lr=0.005, clients=7,
        algorithm="LocalOpt(FedAvg(), Adam(eps=1e-08, beta2=0.999, bias_correction=True))",
        above=1.5,
    ),
    Setting(
        "newsgroups20(form='bag')", "DirichletTotal(clients=100, alpha=1.0)", "linear", lr=5.0,
        rounds=60, above=5.0,
    ),
    Setting(
        "agnews(form='bag', train='train-subset.csv.gz')", "DirichletTotal(clients=100, alpha=1.0)",
        "linear", lr=5.0, above=2.5,
    ),
    Setting(
        "sent140(minimum=1, test='tweets', file='sent140-sample.csv.gz')", "IID(clients=100)",
        "linear", lr=4.0, batch_size=8, rounds=100, clients=30, algorithm="FedAvg()", above=1.25,
    ),
]  # fmt: skip


def run(setting: Setting, folder: Path) -> dict[str, object]:
    """The row of a setting."""
    own = folder / setting.folder
    use_data_dir(own if own.exists() else folder)
    experiment = setting.experiment()
    began = time.perf_counter()
    task, data = experiment.prepare(0)
    (row,) = Trial(experiment, experiment.algorithms[0], 0, task, data).rows()
    majority = int(torch.bincount(data.test_targets).max()) / len(data.test_targets)
    return {
        **asdict(setting),
        "training samples": int(data.sizes.sum()),
        "all clients": len(data),
        "chance": majority,
        "accuracy": row["accuracy"],
        "seconds": round(time.perf_counter() - began),
    }


def write_page(rows: list[dict[str, object]]) -> None:
    """The table in the documentation."""
    shown = ("data", "partition", "model", "algorithm", "all clients", "clients", "rounds")
    heads = (*shown, "training samples", "chance", "accuracy")
    lines = [
        "# Does it learn?",
        "",
        "Short federated runs on real data, made by `python -m benchmarks.learning FOLDER`: one",
        "seed, few rounds, subsets where only subsets were at hand (the training samples tell).",
        "They show that data, partitions and models fit together, and are no results to quote.",
        "Chance is what always naming the commonest class of the test set gives.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for row in rows:
        cells = [str(row[head]) for head in (*shown, "training samples")]
        percents = [f"{100 * float(str(row[head])):.1f} %" for head in ("chance", "accuracy")]
        lines.append(f"| {' | '.join(cells + percents)} |")
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for setting in SETTINGS:
        try:
            row = run(setting, folder)
        except UndriftError as error:
            print(f"{setting.data}: not run: {error}")
            continue
        print("{data}: {accuracy:.1%} (chance {chance:.1%}), {seconds} s".format(**row))
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        rows = {one["data"]: one for one in known} | {setting.data: row}
        ordered = [rows[one.data] for one in SETTINGS if one.data in rows]
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
        write_page(ordered)


if __name__ == "__main__":
    main()
