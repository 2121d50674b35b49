"""Measures of label skew between clients.

`counts` has the number of samples per client (rows) and class (columns). Values of clients without
samples are NaN.
"""

from __future__ import annotations

from undrift.later import np


def shares(counts: np.ndarray) -> np.ndarray:
    """Label distribution of each client."""
    sizes = counts.sum(axis=1, keepdims=True)
    p: np.ndarray = np.divide(counts, sizes, out=np.full(counts.shape, np.nan), where=sizes > 0)
    return p


def label_entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy of each client's labels, bits: 0 for one class, log2(C) for C equal classes."""
    p = shares(counts)
    logarithms = np.log2(p, out=np.zeros_like(p), where=p > 0)
    entropy: np.ndarray = np.abs((p * logarithms).sum(axis=1))
    return entropy


def total_variation(counts: np.ndarray) -> np.ndarray:
    """½ Σ |p - q| between each client's label distribution p and the overall q; in [0, 1).

    0 if both are the same; near 1 if the client has only rare labels.
    """
    distance: np.ndarray = 0.5 * np.abs(shares(counts) - _overall(counts)).sum(axis=1)
    return distance


def hellinger(counts: np.ndarray) -> np.ndarray:
    """√(1 - Σ √(p q)) between each client's label distribution p and the overall q; in [0, 1)."""
    overlap = np.sqrt(shares(counts) * _overall(counts)).sum(axis=1)
    distance: np.ndarray = np.sqrt(np.maximum(1 - overlap, 0))
    return distance


def _overall(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=0)
    overall: np.ndarray = total / max(total.sum(), 1)
    return overall
