"""The command line."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError, UnknownOptionError

from undrift._version import __version__
from undrift.config import UndriftError
from undrift.system.files import NO_ROOM

COMMANDS = {
    "demo": (
        "compare:demo",
        "Compare six optimisers on handwritten digits with strongly skewed clients; "
        "about a minute.",
    ),
    "compare": (
        "compare:compare",
        "Compare algorithms on the same partitions, cohorts and batches.",
    ),
    "tune": (
        "tune:tune",
        "Find good settings for each algorithm, on validation clients and with the same budget.",
    ),
    "sweep": (
        "sweep:sweep",
        "Run every combination of some settings, to see how much they matter.",
    ),
    "run": ("compare:run_file", "Run the experiment in a TOML file."),
    "resume": (
        "resume:resume",
        "Go on with a run that was interrupted, from its last checkpoint.",
    ),
    "extend": (
        "extend:extend",
        "Let a run grow by seeds, rounds or algorithms; only what is missing is run.",
    ),
    "fork": (
        "fork:fork",
        "Start a new run from the state that another one had after a round.",
    ),
    "verify": (
        "verify:verify",
        "Check that nothing in runs was damaged: settings, rows, failures, models and checkpoints.",
    ),
    "export": (
        "export:export",
        "Write the deployed model of a run to a file, with what is known about it.",
    ),
    "prune": (
        "prune:prune",
        "Remove checkpoints that are not needed; results, models and reports stay.",
    ),
    "rm": ("rm:rm", "Remove runs, with all that belongs to them."),
    "report": (
        "report:report",
        "Make one page, figures and tables of one or several run directories.",
    ),
    "watch": (
        "watch:watch",
        "Show the runs in a folder on a local page that keeps up with them. Ctrl-C ends it.",
    ),
    "ls": ("show:ls", "List the runs in a folder, the latest first."),
    "show": (
        "show:show",
        "Show a run: settings, progress, the last evaluation, failures, and where its files are.",
    ),
    "diff": (
        "diff:diff",
        "Compare two runs: their settings, and where their results begin to differ.",
    ),
    "cite": (
        "cite:cite",
        "Print BibTeX of undrift and of all that a run used: algorithms, parts, data, model.",
    ),
    "new": (
        "new:new",
        "Write a file to start from: an algorithm with its test and an experiment, a part, "
        "a model ...",
    ),
    "check": (
        "check:check",
        "Check an algorithm, yours or ours, against the laws that every algorithm must obey.",
    ),
    "conform": (
        "conform:conform",
        "Compare an implementation of a method, in any code base, with the method itself.",
    ),
    "profile": ("profile:profile", "Show where the time of an experiment's rounds goes."),
    "cost": (
        "cost:cost",
        "Show what algorithms cost; without any, the cost tables of the AdaBest and FedGBO papers.",
    ),
    "deploy": ("deploy:deploy_app", "Train on real devices, through Flower."),
    "paper": (
        "paper:paper_app",
        "The tables and figures of the papers: claims, budgets, runs and verdicts.",
    ),
    "data": ("data:data_app", "Show, fetch and find data sets."),
    "partition": ("partition:partition_app", "See, save and share partitions."),
    "list": (
        "listing:list_",
        "List algorithms (with their parts and optimisers), data sets, models, partitions, "
        "samplers, stop rules or engines.",
    ),
}
"""where each command is in `undrift.cli`, and the first sentence of its help"""


def application(load: Collection[str] = COMMANDS.keys()) -> App:
    """The command line, with the code of some of its commands; of the others it knows the name."""
    app = App(
        name="undrift",
        help="Federated optimisation under client drift: compare optimisers, see what they cost.",
        version=__version__,
        result_action="return_none",
    )
    for name, (place, summary) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        if name in load:
            app.command(getattr(import_module(f"undrift.cli.{module}"), attribute), name=name)
        else:
            app.command(App(name=name, help=summary))
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    _mend_streams()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        command = [one for one in given if not one.startswith("-")][:1]
        application(command)(given, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except UnknownOptionError as error:
        from undrift.cli.flags import told

        _fail(told(error, given))
    except (UndriftError, CycloptsError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.filename is not None or error.errno not in (*NO_ROOM, errno.EIO, errno.EPIPE):
            raise  # of something else than what we print to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who read it has enough, such as `head`
            sys.exit(141)
        _fail(
            f"the output cannot be written: {error.strerror}; `undrift resume` goes on with a run"
        )


def _mend_streams() -> None:
    """Let nothing end a run for being shown: neither a sign that a stream lacks, nor no stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str) -> NoReturn:
    with suppress(OSError):
        sys.stderr.write(f"undrift: {message}\n")
    sys.exit(2)
