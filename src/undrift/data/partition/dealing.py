"""How samples are dealt out: quotas, wishes, and what happens when a class is used up."""

from __future__ import annotations

import numpy as np

Parts = list[np.ndarray]
"""The positions of each client's samples."""


def quotas(rng: np.random.Generator, samples: int, clients: int, sigma: float) -> np.ndarray:
    """How many samples each client gets.

    All the same for sigma = 0. Otherwise ⌊z_i samples / Σz⌋ with z_i ~ LogNormal(0, sigma²), and
    the first client takes the remainder. Where that would leave a client with nothing, it gets one
    sample of the largest client.
    """
    if sigma == 0:
        return np.full(clients, samples // clients)
    log_z = sigma * rng.standard_normal(clients)
    z = np.exp(log_z - log_z.max())
    sizes: np.ndarray = np.floor(z * samples / z.sum()).astype(np.int64)
    sizes[0] += samples - sizes.sum()
    for empty in np.flatnonzero(sizes == 0):
        sizes[sizes.argmax()] -= 1
        sizes[empty] = 1
    return sizes


def turns(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    """The client of each turn, if each turn's is drawn uniformly from those with room.

    They come like the ticks of independent Poisson clocks, each stopped when its quota is full.
    """
    clients = np.repeat(np.arange(len(sizes)), sizes)
    ticks = rng.exponential(size=len(clients)).cumsum()
    started = np.concatenate([[0.0], ticks])[np.cumsum(sizes) - sizes]
    return clients[np.argsort(ticks - started[clients])]


def log_dirichlet(rng: np.random.Generator, alpha: np.ndarray, rows: int) -> np.ndarray:
    """Logarithms of Dirichlet draws, one a row: they stay apart where the draws themselves are 0.

    log Gamma(a) has the distribution of log Gamma(a + 1) − Exponential / a.
    """
    shape, divisor = (rows, len(alpha)), np.maximum(alpha, 1e-300)
    logs: np.ndarray = np.log(rng.standard_gamma(alpha + 1, shape))
    logs -= rng.exponential(size=shape) / divisor
    logs -= logs.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    return logs


def classes_taken(
    rng: np.random.Generator,
    clients: np.ndarray,
    stock: np.ndarray,
    families: np.ndarray,
    family_wishes: np.ndarray,
    class_wishes: np.ndarray,
) -> np.ndarray:
    """The class taken in each turn, where classes can be used up.

    clients   the client of each turn      family_wishes  log weights of the families, by client
    stock     the samples of each class    class_wishes   log weights of the classes, by client
    families  the family of each class

    A turn draws a family that has stock, then a class of it that has stock. To do so in bulk, all
    turns are drawn as if nothing ran out. They stand up to the first one whose class is used up;
    from there on, all turns of classes that are used up are drawn again from what is left. That is
    what each would have to do when its time comes, and until then nothing depends on it, so the
    distribution is that of going turn by turn. It takes one pass for each class at most.
    """
    family, taken = np.full_like(clients, -1), np.full_like(clients, -1)
    start, redo, stock = 0, np.arange(len(clients)), stock.copy()
    while True:
        usable = np.unique(families[stock > 0])
        lost = redo[~np.isin(family[redo], usable)]
        family[lost] = _picked(rng, family_wishes, clients[lost], usable)
        for one in usable:
            here = redo[family[redo] == one]
            members = np.flatnonzero((families == one) & (stock > 0))
            taken[here] = _picked(rng, class_wishes, clients[here], members)
        ahead = taken[start:].astype(np.min_scalar_type(len(stock)))  # small numbers sort faster
        demand = np.bincount(ahead, minlength=len(stock))
        short = np.flatnonzero(demand > stock)
        if len(short) == 0:
            return taken
        by_class = np.argsort(ahead, kind="stable")
        first_without = by_class[(demand.cumsum() - demand + stock)[short]].min()
        stock -= np.bincount(ahead[:first_without], minlength=len(stock))
        start += first_without
        redo = start + np.flatnonzero(stock[taken[start:]] == 0)


def _picked(
    rng: np.random.Generator, log_weights: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """For each of `rows`, one of `columns`, in proportion to exp(log_weights)."""
    used, row = np.unique(rows, return_inverse=True)
    weights = log_weights[np.ix_(used, columns)]
    upto = np.exp(weights - weights.max(axis=1, keepdims=True)).cumsum(axis=1)
    ladder = upto / upto[:, -1:] + np.arange(len(used))[:, None]
    point = np.minimum(row + rng.random(len(rows)), np.nextafter(row + 1.0, 0))
    place = np.searchsorted(ladder.ravel(), point, side="right") - row * len(columns)
    picked: np.ndarray = columns[place]
    return picked


def rounded(shares: np.ndarray, size: int) -> np.ndarray:
    """Whole samples of each class (columns) for clients (rows) of the given size.

    Shares are rounded, halves to even, from the first class on as long as there is room; the last
    class takes what room is left.
    """
    upto = np.minimum(np.rint(shares * size).astype(np.int64).cumsum(axis=1), size)
    upto[:, -1] = size
    return np.diff(upto, axis=1, prepend=0)


def reassigned(wanted: np.ndarray, stock: np.ndarray) -> np.ndarray:
    """What a client gets of each class when it asks for `wanted`; needs Σ wanted <= Σ stock.

    A class at a time. A shortfall d is made up from the other classes, in ascending order of their
    stock r: each gives ⌈d r / R⌉, with R their total, until nothing is missing.
    """
    left = stock.copy()
    for one in np.flatnonzero(wanted):
        shortfall = max(0, int(wanted[one] - left[one]))
        left[one] -= wanted[one] - shortfall
        if shortfall:
            offers = -(-shortfall * left // left.sum())
            order = np.argsort(left, kind="stable")
            left[order] -= np.diff(np.minimum(offers[order].cumsum(), shortfall), prepend=0)
    taken: np.ndarray = stock - left
    return taken


def dealt(
    rng: np.random.Generator, classes: np.ndarray, clients: np.ndarray, taken: np.ndarray
) -> Parts:
    """Random samples for turns of which client and class are known.

    classes  the class of each sample        clients, taken  the client and the class of each turn
    """
    samples = rng.permutation(len(classes))
    samples = samples[np.argsort(classes[samples], kind="stable")]
    unused = np.bincount(classes) - np.bincount(taken, minlength=classes.max() + 1)
    skipped = unused.cumsum() - unused
    order = np.argsort(taken, kind="stable")
    return grouped(samples[np.arange(len(order)) + skipped[taken[order]]], clients[order])


def grouped(samples: np.ndarray, clients: np.ndarray) -> Parts:
    """The samples of each client; clients are numbered 0, 1, ... without a gap."""
    ends = np.bincount(clients).cumsum()
    return np.split(samples[np.argsort(clients, kind="stable")], ends[:-1])
