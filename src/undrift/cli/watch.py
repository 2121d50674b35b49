"""`undrift watch`: a page that shows runs as they go along."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from undrift.cli.whole import Whole
from undrift.config import UndriftError
from undrift.report import require_extras
from undrift.report.text import printable


def watch(
    folder: Path = Path("runs"),
    *,
    port: Whole = 8765,
    host: str = "127.0.0.1",
    open_: Annotated[bool, Parameter("--open", negative="")] = False,
) -> None:
    """Show the runs in a folder on a local page that keeps up with them. Ctrl-C ends it.

    Example: undrift watch runs --open

    Running, interrupted and finished runs can be chosen and laid over each other. The page needs
    nothing from the internet, and is for this machine alone unless --host says otherwise.

    Parameters
    ----------
    folder
        Folder that holds run directories, a run directory, or the folder of a study or sweep.
    port
        Port of the page; 0 takes any that is free.
    host
        Address to listen at. Whoever reaches an address beyond this machine can see the runs.
    open_
        Open the page in a browser.
    """
    from undrift.report.watch.folder import Folder
    from undrift.report.watch.server import PageServer

    if not 0 <= port < 2**16:
        raise UndriftError(f"--port {port}: must be a whole number from 0 to {2**16 - 1}")
    require_extras("the page", ["plotly"])
    with PageServer(Folder(folder), host, port) as server:
        if not server.private:
            Console(stderr=True).print(
                "undrift: anybody who reaches this machine can see the runs; "
                "leave out --host to show them here only",
                highlight=False,
                soft_wrap=True,
            )
        said = Text(f"watching {printable(folder)} at {server.url}")
        Console(highlight=False).print(said, soft_wrap=True)
        if open_:
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
