"""Tables in layers: merged, with names in their texts replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from undrift.config import UndriftError, unknown

Table = dict[str, Any]


def matches(id: str, pattern: str) -> bool:
    """Whether a cell fits: each part of the pattern fits one of the id's, with * and ?."""
    parts = id.split(",")
    wanted = [one.strip() for one in pattern.split(",") if one.strip()]
    return all(any(fnmatchcase(part, one) for part in parts) for one in wanted)


def merged(old: Table, new: Mapping[str, Any]) -> Table:
    """Tables merged into one; values of the second replace those of the first."""
    both = dict(old)
    for key, value in new.items():
        inner = old.get(key) if value else None
        both[key] = (
            merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
        )
    return both


def pruned(table: Table) -> Table:
    """The table without settings that are None, in tables inside it too."""
    return {
        key: pruned(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }


def filled(value: Any, let: Mapping[str, Any]) -> Any:
    """The value with `{name}` in its texts replaced."""
    if isinstance(value, dict):
        return {key: filled(one, let) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, let) for one in value]
    if not isinstance(value, str):
        return value

    def known(name: str) -> Any:
        if name not in let:
            raise UndriftError(unknown("name in let", name, let))
        return let[name]

    if whole := re.fullmatch(r"\{(\w+)\}", value):
        return filled(known(whole[1]), let)
    return re.sub(r"\{(\w+)\}", lambda found: str(filled(known(found[1]), let)), value)
