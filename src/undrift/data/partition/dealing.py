"""Sampling algorithms of the partitions: client sizes, class draws, classes that run out.

A *turn* is one draw: a client takes one sample of some class.
"""

from __future__ import annotations

from typing import TypeAlias

from undrift.later import np

Parts: TypeAlias = "list[np.ndarray]"
"""For each client, the indices of its samples."""


def quotas(rng: np.random.Generator, samples: int, clients: int, sigma: float) -> np.ndarray:
    """The number of samples of each client.

    ⌊samples / clients⌋ for all if sigma = 0. Otherwise ⌊z_i samples / Σz⌋ with
    z_i ~ LogNormal(0, sigma²); the first client takes the remainder, and a client that would get
    none takes one from the largest.
    """
    if sigma == 0:
        return np.full(clients, samples // clients)
    log_z = sigma * rng.standard_normal(clients)
    z = np.exp(log_z - log_z.max())  # only ratios matter; this cannot overflow
    sizes: np.ndarray = np.floor(z * samples / z.sum()).astype(np.int64)
    sizes[0] += samples - sizes.sum()
    for empty in np.flatnonzero(sizes == 0):
        sizes[sizes.argmax()] -= 1
        sizes[empty] = 1
    return sizes


def turn_order(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    """The client of each turn, drawn uniformly from the clients whose quota is not full.

    Done in bulk: give every client an independent Poisson process of rate 1 that stops when its
    quota is full. The next event is equally likely to be that of any client still running.
    """
    clients = np.repeat(np.arange(len(sizes)), sizes)
    ticks = rng.exponential(size=len(clients)).cumsum()
    started = np.concatenate([[0.0], ticks])[np.cumsum(sizes) - sizes]
    return clients[np.argsort(ticks - started[clients])]  # every process starts at time 0


def log_dirichlet(rng: np.random.Generator, alpha: np.ndarray, rows: int) -> np.ndarray:
    """Logarithms of Dirichlet draws, one per row; finite where the draws underflow to 0.

    log Gamma(a) has the distribution of log Gamma(a + 1) − Exponential / a.
    """
    shape, divisor = (rows, len(alpha)), np.maximum(alpha, 1e-300)
    logs: np.ndarray = np.log(rng.standard_gamma(alpha + 1, shape))
    logs -= rng.exponential(size=shape) / divisor
    logs -= logs.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    return logs


def draw_classes(
    rng: np.random.Generator,
    clients: np.ndarray,
    stock: np.ndarray,
    families: np.ndarray,
    log_family_shares: np.ndarray,
    log_class_shares: np.ndarray,
) -> np.ndarray:
    """The class of each turn, where classes run out.

    clients            the client of each turn
    stock              number of samples of each class
    families           the family (coarse class) of each class
    log_family_shares  log weights of the families, one row per client
    log_class_shares   log weights of the classes, one row per client

    A turn draws a family with stock left, then a class of it with stock left. Done in bulk: all
    turns are drawn as if nothing ran out. Turns before the first whose class has run out are final;
    after it, turns of classes that have run out are drawn again from the rest. No earlier turn
    depends on these, so the distribution is that of drawing turn by turn. Each pass exhausts at
    least one class, so there is at most one pass per class.
    """
    family, taken = np.full_like(clients, -1), np.full_like(clients, -1)
    start, redo, stock = 0, np.arange(len(clients)), stock.copy()  # turns before start are final
    while True:
        usable = np.unique(families[stock > 0])
        lost = redo[~np.isin(family[redo], usable)]
        family[lost] = _choose(rng, log_family_shares, clients[lost], usable)
        for one in usable:
            here = redo[family[redo] == one]
            members = np.flatnonzero((families == one) & (stock > 0))
            taken[here] = _choose(rng, log_class_shares, clients[here], members)
        ahead = taken[start:].astype(np.min_scalar_type(len(stock)))  # small integers sort faster
        demand = np.bincount(ahead, minlength=len(stock))
        short = np.flatnonzero(demand > stock)
        if len(short) == 0:
            return taken
        # In by_class, class c begins at (demand of the classes before it); the turn `stock[c]`
        # further on is the first that finds it empty.
        by_class = np.argsort(ahead, kind="stable")
        first_without = by_class[(demand.cumsum() - demand + stock)[short]].min()
        stock -= np.bincount(ahead[:first_without], minlength=len(stock))
        start += first_without
        redo = start + np.flatnonzero(stock[taken[start:]] == 0)


def _choose(
    rng: np.random.Generator, log_weights: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """For each of `rows`, one of `columns`, with probability proportional to exp(log_weights).

    Inverts all cumulative distributions with one search: that of the i-th distinct row is shifted
    to (i, i + 1], so together they ascend.
    """
    used, row = np.unique(rows, return_inverse=True)
    weights = log_weights[np.ix_(used, columns)]
    upto = np.exp(weights - weights.max(axis=1, keepdims=True)).cumsum(axis=1)
    ladder = upto / upto[:, -1:] + np.arange(len(used))[:, None]
    point = np.minimum(row + rng.random(len(rows)), np.nextafter(row + 1.0, 0))  # may round up to 1
    place = np.searchsorted(ladder.ravel(), point, side="right") - row * len(columns)
    chosen: np.ndarray = columns[place]
    return chosen


def round_shares(shares: np.ndarray, size: int) -> np.ndarray:
    """Whole numbers of samples per class (columns) for clients (rows), each row adding up to size.

    Shares are rounded, halves to even, from the first class on until the row is full; the last
    class takes the rest.
    """
    upto = np.minimum(np.rint(shares * size).astype(np.int64).cumsum(axis=1), size)
    upto[:, -1] = size
    return np.diff(upto, axis=1, prepend=0)


def reassign(wanted: np.ndarray, stock: np.ndarray) -> np.ndarray:
    """The samples per class that a client gets if it wants `wanted`; needs Σ wanted <= Σ stock.

    Class by class. A shortfall d is made up from the other classes, in ascending order of their
    stock r: each gives ⌈d r / R⌉, with R their total, until nothing is missing.
    """
    left = stock.copy()
    for one in np.flatnonzero(wanted):
        shortfall = max(0, int(wanted[one] - left[one]))
        left[one] -= wanted[one] - shortfall  # 0 is left if there is a shortfall, so it offers 0
        if shortfall:
            offers = -(-shortfall * left // left.sum())  # rounded up: together at least shortfall
            order = np.argsort(left, kind="stable")
            left[order] -= np.diff(np.minimum(offers[order].cumsum(), shortfall), prepend=0)
    taken: np.ndarray = stock - left
    return taken


def deal(
    rng: np.random.Generator, classes: np.ndarray, clients: np.ndarray, taken: np.ndarray
) -> Parts:
    """Assign a random sample of the right class to each turn.

    classes         the class of each sample
    clients, taken  the client and the class of each turn
    """
    samples = rng.permutation(len(classes))
    samples = samples[np.argsort(classes[samples], kind="stable")]  # by class, shuffled within
    unused = np.bincount(classes) - np.bincount(taken, minlength=classes.max() + 1)
    skipped = unused.cumsum() - unused  # left over of the classes before
    order = np.argsort(taken, kind="stable")
    return group_by_client(samples[np.arange(len(order)) + skipped[taken[order]]], clients[order])


def group_by_client(samples: np.ndarray, clients: np.ndarray) -> Parts:
    """The samples of each client; client numbers must be 0, 1, ... without gaps."""
    ends = np.bincount(clients).cumsum()
    return np.split(samples[np.argsort(clients, kind="stable")], ends[:-1])
