"""Where the keys of a TOML file stand, however it is written."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from undrift.experiment.toml import Place, find_keys

NASTY = '''\
a = 1 # b = 2
"q.x" . 'y z' = """
k = 3
\\""" x = 1 """""
arr = [ # c = [
  "x = 1", [1, 2], # ]
  { m = 3, n.o = "}" },
  \'\'\'
z = 1\'\'\',
]
d = 1979-05-27 07:32:00
[ t . 'u' ]
v={w=[{x=1}]}
[[s]]
p=1
[[s]]
[s.r]
p=2
'''


def test_where_keys_stand_in_a_nasty_file() -> None:
    lines = {place: line for place, line in find_keys(NASTY) if isinstance(place[-1], str)}
    assert lines == {
        ("a",): 1,
        ("q.x", "y z"): 2,
        ("arr",): 5,
        ("arr", 2, "m"): 7,
        ("arr", 2, "n", "o"): 7,
        ("d",): 11,
        ("t", "u"): 12,
        ("t", "u", "v"): 13,
        ("t", "u", "v", "w"): 13,
        ("t", "u", "v", "w", 0, "x"): 13,
        ("s", 0, "p"): 15,
        ("s", 1, "r"): 17,
        ("s", 1, "r", "p"): 18,
    }
    assert dict(find_keys(NASTY))["arr", 3] == 8


SCALARS = st.sampled_from(
    [
        "1",
        "-2.5e-3",
        "1979-05-27 07:32:00",
        "'# ['",
        r'"a\"] = \\"',
        '""',
        "'''\nrounds = 3\n'''''",
        '"""\n[local] # \\"""\nlr = 1"""',
    ]
)
GAPS = st.sampled_from([" ", "\n", " # rounds = [ '\n", "\n\n  "])

Piece = tuple[str, list[tuple[Place, int]]]
"""A text, and where things begin in it: each one's place and how many lines down."""


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> Piece:
    kind = draw(st.sampled_from(["scalar", "array", "table"] if depth else ["scalar"]))
    if kind == "scalar":
        return draw(SCALARS), []
    text, found = ("[", []) if kind == "array" else ("{", [])
    for key in range(draw(st.integers(0, 3))):
        text += ", " if key else ""
        text += draw(GAPS) if kind == "array" else ""
        place, start = (key,) if kind == "array" else (f"k{key}",), text.count("\n")
        text += "" if kind == "array" else f"k{key} = "
        inner, below = draw(values(depth=depth - 1))
        inner_start = text.count("\n")
        found.append((place, start))
        found += [((*place, *one), inner_start + line) for one, line in below]
        text += inner
    return text + ("]" if kind == "array" else "}"), found


@st.composite
def documents(draw: st.DrawFn) -> Piece:
    text, found = "", []
    heads = ["", "[t]", "['u.v'.w]", "[[x]]", "[x.y]", "[[x]]"]
    tables: list[Place] = [(), ("t",), ("u.v", "w"), ("x", 0), ("x", 0, "y"), ("x", 1)]
    for head, table in zip(heads, tables, strict=True):
        text += draw(GAPS).lstrip(" ") if head else ""
        found += [(table, text.count("\n"))] if head else []
        text += f"{head}\n"
        for key in range(draw(st.integers(0, 3))):
            spelled, place = draw(
                st.sampled_from(
                    [(f"a{key}", (f"a{key}",)), (f'"b #{key}" . c', (f"b #{key}", "c"))]
                )
            )
            value, below = draw(values())
            start = text.count("\n")
            found.append(((*table, *place), start))
            found += [((*table, *place, *one), start + line) for one, line in below]
            text += f"{spelled} = {value} # end = 1\n"
    return text, found


def places(content: Any, *outer: str | int) -> Iterator[Place]:
    inside = content.items() if isinstance(content, dict) else ()
    for key, one in enumerate(content) if isinstance(content, list) else inside:
        yield (*outer, key)
        yield from places(one, *outer, key)


@given(documents())
def test_where_keys_stand(document: Piece) -> None:
    text, expected = document
    found = find_keys(text)
    assert found == [(place, line + 1) for place, line in expected]
    prefixes = {place[: depth + 1] for place, _ in found for depth in range(len(place))}
    assert prefixes == set(places(tomllib.loads(text)))
