"""Text: what others wrote, fit for a terminal."""

from __future__ import annotations


def printable(text: object) -> str:
    """A text whose control characters, and bytes that are no text, are shown as escapes."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(text)
    )
