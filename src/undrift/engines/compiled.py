"""Threads whose local training runs as a recorded program."""

from __future__ import annotations

from undrift.engines.threads import Threads
from undrift.native.recorded import Recorded


class Compiled(Threads):
    """As `Threads`, with local training recorded once and run without Python (see docs/speed.md).

    What cannot be recorded runs as in `Threads`; `reasons` says why.
    """

    trainer = Recorded
