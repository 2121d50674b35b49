"""Ctrl-C and SIGTERM, delayed while something must not be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


@contextmanager
def uninterrupted(when: Callable[[int], bool] = lambda _: True) -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the block has ended.

    when  whether to delay this signal, given the number of those delayed already; else it is
          handled at once
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if threading.current_thread() is not threading.main_thread() or None in before.values():
        yield  # Python runs signal handlers in the main thread only
        return
    waiting: list[int] = []

    def catch(caught: int, frame: FrameType | None) -> None:
        if when(len(waiting)):
            waiting.append(caught)
        else:
            signal.signal(caught, before[signal.Signals(caught)])
            signal.raise_signal(caught)

    try:
        for number in SIGNALS:
            signal.signal(number, catch)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in waiting:
            signal.raise_signal(caught)


@contextmanager
def terminable() -> Iterator[None]:
    """Inside the block, SIGTERM raises `Terminated`, as Ctrl-C raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
