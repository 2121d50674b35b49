"""Ctrl-C and SIGTERM, at moments when they tear nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """Somebody asked the process to end."""


@contextmanager
def uninterrupted(when: Callable[[int], bool] = lambda _: True) -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block is done: it is done whole, or not begun.

    when  whether one must wait now, given how many wait already; if not, it comes through
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if threading.current_thread() is not threading.main_thread() or None in before.values():
        yield  # only the main thread of Python is interrupted by Python's handlers
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
