"""Finds the line of each key in a TOML file, which `tomllib` does not provide."""

from __future__ import annotations

import re
import tomllib
from typing import NamedTuple

Place = tuple[str | int, ...]
"""Keys and positions in arrays, from the outside inwards: `("algorithms", 2)`."""

TOKEN = re.compile(
    r'''
    (?P<blank> [ \t\r]+ | \#[^\n]* )
    | """ (?: \\. | (?!""") [^\\] )* "{3,5}
    | \'\'\' (?: (?!\'\'\') . )* '{3,5}
    | " (?: \\. | [^"\\] )* "
    | ' [^']* '
    | [^\s"'#\[\]{},=]+
    | .
    ''',
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    text: str
    line: int


END = Token("", 0)


def find_keys(text: str) -> list[tuple[Place, int]]:
    """Every key, table and array element of a valid TOML text with its line, in order."""
    return _Finder(text).found


class _Finder:
    """A parser for keys, tables and arrays; of other values it only finds the end."""

    def __init__(self, text: str) -> None:
        tokens, line = [], 1
        for match in TOKEN.finditer(text):
            if not match["blank"]:
                tokens.append(Token(match[0], line))
            line += match[0].count("\n")
        self.tokens = tokens[::-1]
        self.found: list[tuple[Place, int]] = []
        self.lasts: dict[Place, int] = {}  # position of the last table in each array of tables
        table: Place = ()
        while self.tokens:
            if self.skip("\n"):
                continue
            if self.next.text == "[":
                table = self.header()
            else:
                self.pair(table)

    @property
    def next(self) -> Token:
        return self.tokens[-1] if self.tokens else END

    def skip(self, *texts: str) -> bool:
        """Consume the next token if it is one of these; returns whether it was."""
        return bool(self.tokens) and self.next.text in texts and bool(self.tokens.pop())

    def until(self, *texts: str) -> str:
        """Consume and return all text before one of these tokens."""
        taken = []
        while self.tokens and self.next.text not in texts:
            taken.append(self.tokens.pop().text)
        return "".join(taken)

    def header(self) -> Place:
        line = self.next.line
        table: Place = ()
        self.skip("[")
        one_of_many = self.skip("[")
        *outer, name = _place(self.until("]", "\n"))
        self.skip("]")
        self.skip("]")
        for key in outer:
            table = self.entered((*table, key))
        table = (*table, name)
        if one_of_many:
            self.lasts[table] = self.lasts.get(table, -1) + 1
            table = self.entered(table)
        self.found.append((table, line))
        return table

    def entered(self, table: Place) -> Place:
        """The place of a table; of an array of tables, that of its last one."""
        return (*table, self.lasts[table]) if table in self.lasts else table

    def pair(self, table: Place) -> None:
        line = self.next.line
        place = table + _place(self.until("=", "\n"))
        self.skip("=")
        self.found.append((place, line))
        self.value(place)

    def value(self, place: Place) -> None:
        if self.skip("["):
            position = 0
            while self.tokens and not self.skip("]"):
                if not self.skip("\n", ","):
                    self.found.append(((*place, position), self.next.line))
                    self.value((*place, position))
                    position += 1
        elif self.skip("{"):
            while self.tokens and not self.skip("}"):
                if not self.skip("\n", ","):
                    self.pair(place)
        else:
            self.until("\n", ",", "]", "}")


def _place(key: str) -> Place:
    """The place of a key as written, with dots and quotes."""
    content, place = tomllib.loads(f"{key} = 0"), []
    while isinstance(content, dict):
        ((name, content),) = content.items()
        place.append(name)
    return tuple(place)
