"""One thread for torch's arithmetic: small models gain nothing from more, and bits depend on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside the block torch has one thread; afterwards it has as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_one_thread(
    make: Callable[P, Generator[T, None, None]],
) -> Callable[P, Generator[T, None, None]]:
    """A generator whose own code has one thread, and whose consumer has as many as it likes."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        inner = make(*args, **kwargs)
        try:
            while True:
                with one_thread():
                    try:
                        value = next(inner)
                    except StopIteration:
                        return
                yield value
        finally:
            with one_thread():
                inner.close()

    return made
