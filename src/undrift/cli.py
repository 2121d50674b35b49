"""The command line."""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError
from rich.console import Console

from undrift import __version__
from undrift.commands.cite import cite
from undrift.commands.compare import compare, demo, run_file
from undrift.commands.cost import cost
from undrift.commands.data import data_app
from undrift.commands.diff import diff
from undrift.commands.fork import fork
from undrift.commands.listing import list_
from undrift.commands.partition import partition_app
from undrift.commands.profile import profile
from undrift.commands.report import report
from undrift.commands.resume import resume
from undrift.commands.show import ls, show
from undrift.commands.verify import verify
from undrift.commands.watch import watch
from undrift.config import UndriftError

app = App(
    name="undrift",
    help="Federated optimisation under client drift: compare optimisers, see what they cost.",
    version=__version__,
    result_action="return_none",
)
app.command(demo)
app.command(compare)
app.command(run_file, name="run")
app.command(resume)
app.command(fork)
app.command(verify)
app.command(report)
app.command(watch)
app.command(ls)
app.command(show)
app.command(diff)
app.command(cite)
app.command(profile)
app.command(cost)
app.command(data_app)
app.command(partition_app)
app.command(list_, name="list")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except (UndriftError, CycloptsError) as error:
        console = Console(stderr=True, highlight=False, markup=False)
        console.print(f"undrift: {error}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read what we print has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
