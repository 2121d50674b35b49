"""Mistakes of users, told in a sentence."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import Any


class UndriftError(ValueError):
    """A mistake in what the user asked for. The message says what, where, the value and the fix.

    `places` are the fields at fault, where that is known, each as names from the outside inwards.
    """

    def __init__(self, message: str, places: Iterable[tuple[str | int, ...]] = ()) -> None:
        super().__init__(message)
        self.places = tuple(places)


@contextlib.contextmanager
def at(*place: str | int) -> Iterator[None]:
    """What is wrong inside the block is wrong at this place."""
    try:
        yield
    except UndriftError as error:
        error.places = tuple((*place, *inner) for inner in error.places or [()])
        raise


def shortened(value: Any) -> str:
    """What an error shows of a value."""
    try:
        shown = repr(value)
    except ValueError:  # Python prints no number of more than 4300 digits
        return "a very large number"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist: the nearest one, and the list."""
    options = sorted(known)
    folded = {option.lower(): option for option in options}
    near = difflib.get_close_matches(name.lower(), list(folded), n=1)
    guess = f"did you mean {folded[near[0]]!r}? " if near else ""
    return f"no {kind} is called {shortened(name)}; {guess}known: {', '.join(options)}"
