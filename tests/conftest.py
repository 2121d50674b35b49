"""Tests are deterministic, use one thread each and can be interrupted, as can what they start."""

import signal
import sys

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("undrift", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("undrift")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of users' own files, which undrift adds to the path, are forgotten."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the rest of a short run."""
    monkeypatch.setattr("undrift.report.figures._plan", lambda run: {})
