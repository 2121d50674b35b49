"""User errors: one sentence each."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import Any


class UndriftError(ValueError):
    """A user's mistake. The message says what, where, the value and the fix.

    `places` are the paths of the wrong settings, where known, outermost name first.
    """

    def __init__(self, message: str, places: Iterable[tuple[str | int, ...]] = ()) -> None:
        super().__init__(message)
        self.places = tuple(places)


@contextlib.contextmanager
def at(*place: str | int) -> Iterator[None]:
    """Prefix the places of errors inside the block with this one."""
    try:
        yield
    except UndriftError as error:
        error.places = tuple((*place, *inner) for inner in error.places or [()])
        raise


def shortened(value: Any) -> str:
    """A value's `repr`, at most 80 characters, for an error message."""
    try:
        shown = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return "a very large number"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def unknown(kind: str, name: str, known: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """The message for an unknown name: the most similar one, and all, or those to be listed."""
    options = sorted(known)
    folded = {option.lower(): option for option in options}
    near = difflib.get_close_matches(name.lower(), list(folded), n=1)
    guess = f"did you mean {folded[near[0]]!r}? " if near else ""
    return f"no {kind} is called {shortened(name)}; {guess}known: {', '.join(listed or options)}"
