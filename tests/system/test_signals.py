"""Ctrl-C and SIGTERM wait for what must be done whole."""

from __future__ import annotations

import signal
import threading

import pytest

from undrift.system.signals import Terminated, terminable, uninterrupted


def test_a_signal_waits_for_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")
        done.append("and more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]


@pytest.mark.parametrize("insists", [False, True])
def test_a_signal_waits_only_while_it_must(insists: bool) -> None:
    done: list[int] = []

    def work() -> None:
        with uninterrupted(lambda waiting: waiting < 1 if insists else not done):
            for number in range(3):
                signal.raise_signal(signal.SIGINT)
                done.append(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [0]


def test_handlers_are_put_back_even_if_the_block_fails() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ZeroDivisionError), terminable(), uninterrupted():
        _ = 1 / 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_sigterm_becomes_an_exception() -> None:
    with pytest.raises(Terminated), terminable():
        signal.raise_signal(signal.SIGTERM)


def test_other_threads_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    found = []

    def work() -> None:
        with uninterrupted(), terminable():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before]
