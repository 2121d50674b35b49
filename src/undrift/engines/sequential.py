"""One client after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Engine(Protocol):
    """Runs one function for many clients and yields the results in the clients' order."""

    def map(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """The function's results, in order; what fails raises here."""
        ...


class Sequential:
    """One client after another, in the calling thread: for small work and for debugging."""

    def map(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        return map(function, items)
