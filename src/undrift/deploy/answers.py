"""What nodes answer, checked and shortened before anything trusts or prints it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from undrift.deploy.node import Ask
from undrift.deploy.wire import Refused, facts_in

if TYPE_CHECKING:
    from flwr.app import Message

MOST = 2**40
"""samples that a node may say it has"""

LONGEST = 300
"""characters of a node's own words that are kept"""


def read(reply: Message | None, ask: Ask | None = None) -> tuple[dict[str, Any], str]:
    """The facts of an answer, and why there is none, if so: one in time, to this very question."""
    if reply is None:
        return {}, "no answer in time"
    if reply.has_error():
        return {}, f"its node failed: {one_line(reply.error.reason)}"
    try:
        facts = facts_in(reply.content)
    except Refused as refused:
        return {}, f"refused: {refused}"
    if "absent" in facts:
        last = facts.get("last")
        lost = ask is not None and type(last) is int and 0 <= last < ask.accepted
        return {"last": last} if lost else {}, one_line(facts["absent"])
    if ask is not None:
        stamps = facts.get("t"), facts.get("client"), facts.get("based")
        if stamps != (ask.t, ask.client, ask.accepted):
            told = "round {}, client {}, from the memory of round {}"
            wrong, right = told.format(*stamps), told.format(ask.t, ask.client, ask.accepted)
            return {}, f"refused: it answers for {one_line(wrong)}, not {right}"
    return facts, ""


def misfit(facts: Mapping[str, Any]) -> str:
    """Why facts are not those of a node that says who it is; "" if they are."""
    for name, least in {"client": -1, "samples": 0, "tests": 0}.items():
        value = facts.get(name)
        if type(value) is not int or not least <= value < MOST:
            return f"refused: {name} is {one_line(value)}, not a number from {least} on"
    return ""


def is_score(loss: Any, right: Any, answers: Any) -> bool:
    """Whether a node's score can be one: a finite loss, and no more right than answers."""
    whole = type(right) is int and type(answers) is int
    return type(loss) is float and math.isfinite(loss) and whole and 0 <= right <= answers < MOST


def one_line(words: object) -> str:
    """A node's own words as one short line, without what a terminal could take for commands."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(words)).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
