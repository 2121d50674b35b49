"""Partitions: which client holds which samples.

Every sample goes to at most one client, and every client gets at least one. Equal sizes are
⌊samples / clients⌋; the remainder is not used. A client's samples are in no particular order.

Two different partitions are called Dirichlet. In `Dirichlet`, alpha is the concentration of each
class; in `DirichletTotal`, it is the sum over the classes. With 10 balanced classes,
DirichletTotal(alpha=1) is as skewed as Dirichlet(alpha=0.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias, TypeVar

from undrift.config import Config, UndriftError, flag, real, text, whole
from undrift.data.federated import FederatedData
from undrift.data.partition.dealing import (
    Parts,
    deal,
    draw_classes,
    group_by_client,
    log_dirichlet,
    quotas,
    reassign,
    round_shares,
    turn_order,
)
from undrift.data.partition.saved import PartitionFile, read_hash
from undrift.data.source import DataSet
from undrift.later import np
from undrift.rng import stream

Array: TypeAlias = "np.ndarray"
Extra: TypeAlias = "np.ndarray | None"
Rng: TypeAlias = "np.random.Generator"
T = TypeVar("T")


def concentration(*default: float) -> Any:
    """A field for the parameter of a Dirichlet distribution."""
    return real(*default, gt=0, lt=math.inf)


def inequality() -> Any:
    """A field for the sigma of log-normal client sizes; 0: equal sizes."""
    return real(0.0, ge=0, le=10)


@dataclass(frozen=True)
class Partition(Config):
    """Distributes samples to clients."""

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        """The sample indices of each client, given the label of every sample.

        owners  the natural owner of every sample, for `Natural`
        coarse  the coarse label of every fine label, for `Pachinko`
        """
        raise NotImplementedError

    def names(self, owners: Extra) -> list[str] | None:
        """The clients' names in the order of `split`, if the data set has them."""
        return None


@dataclass(frozen=True)
class Natural(Partition):
    """One client for each owner in the data set, numbered in the order of the owners' ids."""

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        if owners is None:
            raise UndriftError(f"{self}: these data have no owners; use another partition")
        if len(owners) != len(labels):
            raise UndriftError(f"{self}: {len(owners)} owners for {len(labels)} samples")
        return group_by_client(np.arange(len(labels)), np.unique(owners, return_inverse=True)[1])

    def names(self, owners: Extra) -> list[str] | None:
        return None if owners is None else np.unique(owners).astype(str).tolist()


@dataclass(frozen=True)
class Shared(Partition):
    """Base of the partitions with a given number of clients."""

    clients: int = whole(ge=1)

    def size(self, samples: int, pieces: int = 1) -> int:
        """Samples per piece, if every client gets `pieces` pieces of equal size."""
        if self.clients * pieces > samples:
            raise UndriftError(
                f"{self}: {samples} samples are too few for {self.clients} clients; "
                f"use at most {samples // pieces} clients"
            )
        return samples // (self.clients * pieces)

    def classes(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The distinct labels, the class (index into these) of each sample, samples per class."""
        if labels.ndim != 1 or labels.dtype.kind not in "biu":
            raise UndriftError(
                f"{self}: needs one integer label per sample, but the labels are {labels.dtype} of "
                f"shape {labels.shape}; use IID(clients={self.clients}) or Natural()"
            )
        return np.unique(labels, return_inverse=True, return_counts=True)


@dataclass(frozen=True)
class IID(Shared):
    """Shuffled samples, cut into slices.

    sigma       0: equal sizes; above (at most 10): log-normal sizes, see `quotas`
    stratified  distribute each class evenly: clients differ by at most one sample per class
    """

    _: KW_ONLY
    sigma: float = inequality()
    stratified: bool = flag(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stratified and self.sigma:
            self.refuse("a stratified split needs sigma=0", sigma=self.sigma, stratified=True)

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        size = self.size(len(labels))
        order = rng.permutation(len(labels))
        if self.stratified:
            used = order[: size * self.clients]
            by_class = used[np.argsort(self.classes(labels)[1][used], kind="stable")]
            return list(by_class.reshape(size, self.clients).T)  # round robin
        ends = np.cumsum(quotas(rng, len(labels), self.clients, self.sigma))
        return np.split(order[: ends[-1]], ends[:-1])


@dataclass(frozen=True)
class Shards(Shared):
    """Samples sorted by label and cut into equal shards; every client gets `shards` at random.

    Samples that do not fill a shard are left out at random, before sorting.

    Reference: McMahan et al., Communication-efficient learning of deep networks from decentralized
    data, AISTATS 2017.
    """

    shards: int = whole(2, ge=1)

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        size, pieces = self.size(len(labels), self.shards), self.clients * self.shards
        used = rng.permutation(len(labels))[: size * pieces]
        by_class = used[np.argsort(self.classes(labels)[1][used], kind="stable")]
        shards = by_class.reshape(pieces, size)[rng.permutation(pieces)]
        return list(shards.reshape(self.clients, -1))


@dataclass(frozen=True)
class Dirichlet(Shared):
    """Each client draws labels from its own class proportions, drawn from Dir(alpha, ..., alpha).

    Until all quotas are full, a client whose quota is not full is picked uniformly and takes a
    sample of a class drawn from its proportions, renormalised over the classes that are left.

    alpha  concentration per class: near 0 a client has one class, far above 1 all are alike
    sigma  0: equal sizes; above (at most 10): log-normal sizes, see `quotas`

    This is the partition of FedDyn and AdaBest.
    Deviations: none in distribution; samples are drawn in bulk, see `turn_order` and
    `draw_classes`.
    Reference: Acar et al., Federated learning based on dynamic regularization, ICLR 2021.
    """

    alpha: float = concentration()
    _: KW_ONLY
    sigma: float = inequality()

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        self.size(len(labels))  # refuses too few samples
        _, classes, stock = self.classes(labels)
        shares = log_dirichlet(rng, np.full(len(stock), self.alpha), self.clients)
        clients = turn_order(rng, quotas(rng, len(labels), self.clients, self.sigma))
        one_family, sure = np.zeros(len(stock), dtype=np.int64), np.zeros((self.clients, 1))
        taken = draw_classes(rng, clients, stock, one_family, sure, shares)
        return deal(rng, classes, clients, taken)


@dataclass(frozen=True)
class DirichletTotal(Shared):
    """Each client has class proportions drawn from Dir(alpha p), p the shares of the classes.

    Clients are filled one after the other. What a class lacks is made up from the others (see
    `reassign`). The last client takes all that is left, so every sample is used.

    alpha  sum of the concentrations of all classes

    This is the partition of FedNLP and FedGLAD.
    Deviations: shares of the stock are rounded up in integer arithmetic, not in floating point, so
    that one pass always makes up a shortfall.
    Reference: Lin et al., FedNLP: benchmarking federated learning methods for natural language
    processing tasks, Findings of NAACL 2022.
    """

    alpha: float = concentration()

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        size = self.size(len(labels))
        _, classes, stock = self.classes(labels)
        shares = log_dirichlet(rng, self.alpha * (stock / len(labels)), self.clients - 1)
        counts = []
        for wanted in round_shares(np.exp(shares), size):
            counts.append(reassign(wanted, stock))
            stock = stock - counts[-1]
        table = np.array([*counts, stock])  # samples per client (rows) and class (columns)
        clients, taken = (np.repeat(ids.ravel(), table.ravel()) for ids in np.indices(table.shape))
        return deal(rng, classes, clients, taken)


@dataclass(frozen=True)
class Pachinko(Shared):
    """Each client draws coarse labels from its own Dir(alpha), then fine ones from its Dir(beta).

    Clients are filled one after the other, all with the same number of samples. When a fine label
    runs out, the others of its coarse label take its share; when a coarse label does, all others
    do.

    alpha  concentration per coarse label
    beta   concentration per fine label, among those of its coarse one

    Reference: Reddi et al., Adaptive federated optimization, ICLR 2021 (CIFAR-100, 500 clients).
    """

    alpha: float = concentration(0.1)
    beta: float = concentration(10.0)

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        if coarse is None:
            raise UndriftError(f"{self}: these data have no coarse labels; use another partition")
        clients = np.repeat(np.arange(self.clients), self.size(len(labels)))
        names, classes, stock = self.classes(labels)
        if names[-1] >= len(coarse):
            raise UndriftError(
                f"{self}: label {names[-1]} has no coarse label; coarse lists only {len(coarse)}"
            )
        kinds, families = np.unique(np.asarray(coarse)[names], return_inverse=True)
        coarse_shares = log_dirichlet(rng, np.full(len(kinds), self.alpha), self.clients)
        fine_shares = log_dirichlet(rng, np.full(len(names), self.beta), self.clients)
        taken = draw_classes(rng, clients, stock, families, coarse_shares, fine_shares)
        return deal(rng, classes, clients, taken)


@dataclass(frozen=True)
class Saved(Partition):
    """A partition from a file, as `undrift partition show --save` writes it.

    path  the file
    hash  expected hash of the partition; taken from the file if not given
    """

    path: str = text()
    hash: str | None = text(None, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        found = read_hash(self.path)
        if self.hash not in (None, found):
            self.refuse(f"the file holds another partition, {found}", hash=self.hash)
        object.__setattr__(self, "hash", found)

    def split(self, labels: Array, rng: Rng, owners: Extra = None, coarse: Extra = None) -> Parts:
        file = PartitionFile.load(self.path)
        file.check(self.path, labels)
        return file.parts


PARTITIONS = {
    "IID": IID,
    "Dirichlet": Dirichlet,
    "DirichletTotal": DirichletTotal,
    "Pachinko": Pachinko,
    "Shards": Shards,
    "Natural": Natural,
    "Saved": Saved,
}


def default_partition(client_column: str | None = None) -> str:
    """The partition of the command line if none is named."""
    return "Natural()" if client_column else "Dirichlet(clients=100, alpha=0.1)"


def held_out(
    parts: Sequence[T], rng: np.random.Generator, count: int | None = None
) -> tuple[list[T], list[T]]:
    """Training and validation clients: `count` clients, drawn at random, are for validation.

    By default one in eleven: of 110 clients, 100 train and 10 validate.
    """
    count = max(1, round(len(parts) / 11)) if count is None else count
    if not 0 < count < len(parts):
        raise UndriftError(
            f"held_out(count={count}): must be at least 1 and leave a client to train, "
            f"but there are {len(parts)} clients"
        )
    drawn = set(rng.choice(len(parts), count, replace=False).tolist())
    training = [part for i, part in enumerate(parts) if i not in drawn]
    return training, [parts[i] for i in sorted(drawn)]


def federate(
    source: DataSet, partition: Partition, seed: int, validation: int = 0
) -> FederatedData:
    """Load a data set and distribute its training samples to clients.

    validation  number of clients, drawn at random, that validate and do not train
    """
    loads = isinstance(source, DataSet) and not isinstance(source, type)
    if not loads or not isinstance(partition, Partition):
        wrong: object = partition if loads else source
        raise UndriftError(
            f"federate: {wrong!r} is not a {'partition' if wrong is partition else 'data set'}; "
            "give objects, such as federate(Digits(), IID(clients=10), seed=0)"
        )
    data = source.load(seed)
    labels, rng = data.targets.cpu().numpy(), stream(seed, "partition")
    parts = partition.split(labels, rng, data.client_ids, data.coarse)
    train, test = (data.inputs, data.targets), (data.test_inputs, data.test_targets)
    training, validating = list(range(len(parts))), list[int]()
    if validation >= len(parts):
        raise UndriftError(
            f"validation={validation}: must leave a client to train, "
            f"but there are {len(parts)} clients"
        )
    if validation:
        training, validating = held_out(training, stream(seed, "validation clients"), validation)
    names = partition.names(data.client_ids)
    return FederatedData.split(
        train,
        test,
        [parts[i] for i in training],
        data.transform,
        [parts[i] for i in validating],
        client_names=None if names is None else tuple(names[i] for i in training),
        class_names=data.class_names,
        note=data.note,
    )
