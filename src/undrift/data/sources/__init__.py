"""Data sets by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from undrift.config import UndriftError, shortened, unknown
from undrift.config.expressions import parse
from undrift.config.own import references
from undrift.data.source import DataSet
from undrift.data.sources.agnews import AGNews
from undrift.data.sources.cifar import CIFAR10, CIFAR100
from undrift.data.sources.digits import Digits
from undrift.data.sources.emnist import (
    EMNIST,
    emnist_balanced,
    emnist_byclass,
    emnist_digits,
    emnist_letters,
)
from undrift.data.sources.femnist import FEMNIST
from undrift.data.sources.mnist import MNIST, FashionMNIST
from undrift.data.sources.newsgroups import Newsgroups20
from undrift.data.sources.sent140 import Sent140
from undrift.data.sources.shakespeare import Shakespeare, TinyShakespeare
from undrift.data.sources.stackoverflow import StackOverflow
from undrift.data.sources.synthetic import Synthetic
from undrift.data.sources.table import ENDINGS, Table, table_file

SOURCES: dict[str, Callable[..., Any]] = {
    "digits": Digits,
    "synthetic": Synthetic,
    "mnist": MNIST,
    "fashion-mnist": FashionMNIST,
    "emnist": EMNIST,
    "emnist-letters": emnist_letters,
    "emnist-byclass": emnist_byclass,
    "emnist-balanced": emnist_balanced,
    "emnist-digits": emnist_digits,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "femnist": FEMNIST,
    "shakespeare": Shakespeare,
    "tinyshakespeare": TinyShakespeare,
    "sent140": Sent140,
    "newsgroups20": Newsgroups20,
    "agnews": AGNews,
    "stackoverflow": StackOverflow,
    "table": Table,
}


def dataset(text: str, target: str | None = None, client: str | None = None) -> DataSet:
    """The data set for a name or expression: `emnist-letters`, `CIFAR100(labels="coarse")`.

    Hyphens, underscores and case of the name do not matter. The `repr` of a data set is such an
    expression. The path of a CSV or Parquet file is a `Table`.

    target, client  columns of a file, given as --target-column and --client-column
    """
    text = text.strip()
    if text.lower().endswith(ENDINGS):
        return table_file(text, target, client)
    for flag, column in (("--target-column", target), ("--client-column", client)):
        if column is not None:
            raise UndriftError(
                f"{flag} {column}: it goes with the path of a CSV or Parquet file; "
                f"{shortened(text)} is none"
            )
    if any(references(text)):
        from undrift.data.own import OwnData  # which needs torch

        own: DataSet = parse(text, {}, "data set", adapt=OwnData.adapt)
        return own
    if re.search(r"[/\\]|\.(gz|npz?|json|txt)$", text.partition("(")[0].strip()):
        raise UndriftError(
            f"{shortened(text)} is a file; give the name of a data set, such as mnist with "
            f"--data-dir FOLDER, or a table that ends in {', '.join(ENDINGS)}"
        )
    name, rest = re.fullmatch(r"\s*([\w-]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    folded = {_fold(known): make for known, make in SOURCES.items()}
    if name and _fold(name) not in folded:
        raise UndriftError(unknown("data set", name, SOURCES))
    made: DataSet = parse(_fold(name) + rest, folded, "data set")
    return made


def _fold(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


__all__ = [
    "CIFAR10",
    "CIFAR100",
    "EMNIST",
    "FEMNIST",
    "MNIST",
    "SOURCES",
    "AGNews",
    "Digits",
    "FashionMNIST",
    "Newsgroups20",
    "Sent140",
    "Shakespeare",
    "StackOverflow",
    "Synthetic",
    "Table",
    "TinyShakespeare",
    "dataset",
]
