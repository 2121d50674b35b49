"""Text from files and users, made safe for a terminal."""

from __future__ import annotations


def printable(text: object) -> str:
    """The text with control characters and undecodable bytes as escapes."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(text)
    )
