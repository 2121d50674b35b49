"""What a run shows of itself, with a clock that the test sets."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.report.directory import A, B, make_run
from undrift.cli.progress import show_progress, show_steps
from undrift.experiment.experiment import Experiment
from undrift.runs.runner import Event
from undrift.training.work import Local

LONG = "FedGLAD(ServerOpt(FedProx, Adam))"


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def shown(self) -> list[str]:
        """Lines, and versions of a line that is drawn again, without colours."""
        lines = re.split(r"\r|\n|\x1b\[2K", self.getvalue())
        plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in lines]
        return [line.rstrip() for line in plain if line.strip()]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JPY_PARENT_PID", "MPLBACKEND", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def trial(
    clock: Clock, label: str, seed: int, rounds: Iterable[int], seconds: float
) -> Iterator[Event]:
    """The events of a trial with so many seconds per round, evaluated every tenth round."""
    place = (f"{label}()", label, seed)
    rounds = list(rounds)
    yield Event("begin", *place, round=rounds[0] - 1)
    for t in rounds:
        clock.now += seconds
        if t % 10 == 0:
            yield Event("row", *place, round=t, row={"accuracy": t / 200, "x_norm": 2.0})
        yield Event("round", *place, round=t)
    yield Event("end", *place, round=rounds[-1])


def show(
    events: Iterable[Event],
    clock: Clock,
    terminal: bool = False,
    width: int = 80,
    folder: Path = Path("nowhere"),
    rounds: int = 100,
) -> Stream:
    """What a run of three algorithms on two seeds shows."""
    experiment = Experiment(
        data="digits",
        partition="IID(clients=10)",
        model="linear",
        local=Local(),
        sampler="Uniform(5)",
        algorithms=["FedAvg", "AdaBest", "FedGLAD(ServerOpt(FedProx(mu=0.1), Adam(lr=0.01)))"],
        rounds=rounds,
        seeds=(0, 1),
    )
    stream = Stream(terminal)
    console = Console(file=stream, width=width, highlight=False)
    show_progress(experiment, events, folder, console, clock)
    return stream


def test_a_log_has_a_line_per_minute_and_one_per_trial(clock: Clock) -> None:
    def events() -> Iterator[Event]:
        yield Event("start", note="2 workers")
        yield from trial(clock, "FedAvg", 0, range(1, 101), seconds=1.0)
        yield from trial(clock, "AdaBest", 0, range(1, 101), seconds=0.5)
        yield from trial(clock, "FedAvg", 1, range(1, 101), seconds=1.0)

    measured = "accuracy 30.00 %  ‖x‖ 2"
    result = "accuracy 50.00 %  ‖x‖ 2"
    assert show(events(), clock).shown == [
        "engine: 2 workers",
        f"FedAvg, seed 0: round 60/100, {measured}, 1/s, 0:00:40 left; all: 0:09:00 left",
        f"FedAvg, seed 0: {result}, 1/s, 1 of 6 trials done, 0:08:20 left",
        f"AdaBest, seed 0: {result}, 2/s, 2 of 6 trials done, 0:05:00 left",
        f"FedAvg, seed 1: round 60/100, {measured}, 1/s, 0:00:40 left; all: 0:04:12 left",
        f"FedAvg, seed 1: {result}, 1/s, 3 of 6 trials done, 0:03:37 left",
    ]


def test_long_rounds_have_a_line_each(clock: Clock) -> None:
    shown = show(trial(clock, "FedAvg", 0, range(1, 4), seconds=4000), clock).shown
    assert [line.split(", 0.00025/s, ")[0] for line in shown[:3]] == [
        f"FedAvg, seed 0: round {t}/100" for t in (1, 2, 3)
    ]
    assert shown[0].endswith("4 days, 14:00:00 left; all: 27 days, 17:33:20 left")


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_terminal_has_one_bar_that_fits(clock: Clock, width: int) -> None:
    def events() -> Iterator[Event]:
        yield from trial(clock, "FedAvg", 0, range(1, 101), seconds=0.25)
        yield from trial(clock, LONG, 0, range(1, 101), seconds=0.25)

    stream = show(events(), clock, terminal=True, width=width)
    bars = [line for line in stream.shown if "━" in line]
    assert max(map(len, bars)) <= width
    if width >= 80:
        rest = r"4/s  accuracy 25.00 %(  ‖x‖ 2)?  0:0"
        assert re.search(rf"^FedAvg +seed 0 [━╸╺]+ +50/600 {rest}2:18 left$", "\n".join(bars), re.M)
        assert re.search(
            rf"^FedGLAD.* seed 0 [━╸╺]+ 150/600 {rest}1:52 left$", "\n".join(bars), re.M
        )
    assert [line for line in stream.shown if ", seed" in line] == [
        f"{label}, seed 0: accuracy 50.00 %{'  ‖x‖ 2' if width == 120 else ''}"
        for label in ("FedAvg", LONG)
    ]


def test_bars_are_for_terminals_only(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def bars(terminal: bool = True) -> bool:
        events = trial(clock, "FedAvg", 0, range(1, 3), seconds=1.0)
        return "━" in show(events, clock, terminal).getvalue()

    assert bars()
    with monkeypatch.context() as patch:
        patch.setenv("FORCE_COLOR", "1")  # as ipykernel and many CI systems do
        assert not bars(terminal=False)
    for name, value in [
        ("JPY_PARENT_PID", "7"),
        ("MPLBACKEND", "module://matplotlib_inline.backend_inline"),
        ("TERM", "dumb"),
    ]:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not bars()


def test_a_resumed_run_counts_and_shows_what_is_done(tmp_path: Path, clock: Clock) -> None:
    failure = {"algorithm": B, "seed": 0, "round": 15, "reason": "the [b]model[/b] is not finite"}
    make_run(tmp_path, failures=[failure])

    def events() -> Iterator[Event]:
        yield Event("done", A, "FedAvg", 0, round=20)
        yield Event("done", B, "AdaBest", 0, round=20)
        yield from trial(clock, "FedAvg", 1, range(16, 21), seconds=2.0)

    assert show(events(), clock, folder=tmp_path, rounds=20).shown == [
        "FedAvg, seed 0: accuracy 70.00 %  ‖x‖ 21 (done before)",
        "AdaBest, seed 0: ended in round 15: the [b]model[/b] is not finite (done before)",
        "FedAvg, seed 1: resumes after round 15",
        "FedAvg, seed 1: accuracy 10.00 %  ‖x‖ 2, 0.5/s, 3 of 6 trials done, 0:02:00 left",
    ]


def test_a_trial_that_ends_early_takes_its_rounds_along(clock: Clock) -> None:
    def events() -> Iterator[Event]:
        for event in trial(clock, "FedAvg", 0, range(1, 11), seconds=1.0):
            yield replace(event, note="not finite") if event.kind == "end" else event

    assert show(events(), clock).shown == [
        "FedAvg, seed 0: ended in round 10: not finite, 1/s, 1 of 6 trials done, 0:08:20 left"
    ]


def test_a_time_that_is_not_known_is_not_told(clock: Clock) -> None:
    events = [Event("begin", A, "FedAvg", 0, round=100), Event("end", A, "FedAvg", 0, round=100)]
    assert show(events, clock).shown[-1] == "FedAvg, seed 0: 1 of 6 trials done"


def test_steps_to_a_fork(clock: Clock) -> None:
    def steps() -> Iterator[None]:
        for _ in range(5):
            clock.now += 30
            yield

    stream = Stream(terminal=False)
    show_steps(steps(), "to the fork", 10, Console(file=stream), clock)
    assert stream.shown == ["to the fork: 2/10, 0:04:00 left", "to the fork: 4/10, 0:03:00 left"]
