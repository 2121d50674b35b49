"""Parser of expressions that name objects: `AdaBest(mu=0.02)`, `fedglad+./mine.py:Half`."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from undrift.config import Config, UndriftError, own, shortened, unknown

T = TypeVar("T")


def parse(
    text: str,
    names: Mapping[str, Callable[..., T]],
    kind: str = "algorithm",
    elsewhere: Mapping[str, str] | None = None,
    adapt: Callable[[Any], Callable[..., Any]] = lambda own: own,
) -> T:
    """Make the object that `text` names: `AdaBest(mu=0.02)`, `adabest`, `fedglad+fedadam`.

    The text is parsed as a tree of calls and literals; it is never evaluated. Names are those of
    `names`; case and underscores do not matter. `a+b+c` is a(b(c)), `a(x=1)+b` is a(b, x=1).
    `./mine.py:Half` and `package.module:Half` are users' own (`undrift.config.own`).

    elsewhere  parameter -> hint, for parameters that users expect here but that are set elsewhere
    adapt      makes a user's own class or function what is called here
    """
    if text.strip().endswith(".py"):
        raise UndriftError(f"{text.strip()} is a file; write {text.strip()}:NAME for what is in it")
    folded = {_fold(name): make for name, make in names.items()}

    def build(node: ast.expr) -> Any:
        match node:
            case ast.Name(id="inf"):
                return math.inf
            case ast.Name(id=name):
                return call(name, [], [])
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if all(
                keyword.arg for keyword in keywords
            ):
                return call(name, [build(arg) for arg in args], keywords)
            case ast.BinOp(op=ast.Add()):
                *parts, core = chain(node)
                refuse_order(parts, core)
                return functools.reduce(
                    lambda inner, outer: wrap(outer, inner), parts[::-1], build(core)
                )
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            shown = ast.unparse(node)
            raise UndriftError(f"{text!r}: {shown!r} is neither a name nor a plain value") from None

    def chain(node: ast.expr) -> list[ast.expr]:
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [*chain(left), *chain(right)]
        return [node]

    def refuse_order(parts: list[ast.expr], core: ast.expr) -> None:
        """Refuse a part without an `inner` parameter anywhere but last."""
        for part in parts:
            if has_inner(part) is False:
                wrong = f"{text!r}: {ast.unparse(part)} cannot go around another {kind}"
                if not has_inner(core):
                    raise UndriftError(f"{wrong}, nor can {ast.unparse(core)}; use one of them")
                right = [*(one for one in parts if one is not part), core, part]
                raise UndriftError(
                    f"{wrong}, so it stands last: {'+'.join(map(ast.unparse, right))}"
                )

    def has_inner(node: ast.expr) -> bool | None:
        match node:
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
                return "inner" in inspect.signature(find(name)).parameters
        return None

    def wrap(outer: ast.expr, inner: Any) -> Any:
        match outer:
            case ast.Name(id=name):
                return call(name, [inner], [])
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return call(name, [inner, *map(build, args)], keywords)
        raise UndriftError(
            f"{text!r}: {ast.unparse(outer)!r} cannot come before '+'; give a name there"
        )

    def find(name: str) -> Callable[..., Any]:
        if found := own.REFERENCE.fullmatch(name):
            return adapt(own.load(found["place"], found["name"]))
        if _fold(name) not in folded:
            raise UndriftError(unknown(kind, name, names))
        return folded[_fold(name)]

    def call(name: str, args: list[Any], keywords: list[ast.keyword]) -> Any:
        make = find(name)
        given = {keyword.arg: build(keyword.value) for keyword in keywords if keyword.arg}
        if len(given) < len(keywords):
            raise UndriftError(f"{_name(make)}: a parameter is given twice, or not by name")
        try:
            return make(*args, **given)
        except TypeError as error:
            known = list(inspect.signature(make).parameters)
            wrong = [key for key in given if key not in known]
            if wrong:
                hint = unknown("parameter", wrong[0], known)
                if elsewhere and wrong[0] in elsewhere:
                    hint += f"; {elsewhere[wrong[0]]}"
                raise UndriftError(f"{_name(make)}({wrong[0]}=...): {hint}") from None
            if missing := _missing(make, len(args), given):
                write = ", ".join(f"{one}=..." for one in _missing(make, 0, ()))
                raise UndriftError(
                    f"{_name(make)}: {' and '.join(missing)} must be given; write "
                    f"{_name(make)}({write})"
                ) from None
            raise UndriftError(f"{_name(make)}: {error}") from None

    try:
        parsed = tree(text.strip())
        if any(isinstance(node, ast.Constant) and _huge(node.value) for node in ast.walk(parsed)):
            raise UndriftError(f"{shortened(text)}: a number is too large")
        built = build(parsed.body)
    except UndriftError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UndriftError(
            f"{shortened(text)} is not a valid {kind}; write it like Name(parameter=value)"
        ) from None
    if not isinstance(built, Config):
        raise UndriftError(f"{shortened(text)} is of the type {type(built).__name__}, no {kind}")
    return built  # type: ignore[return-value]


def tree(text: str) -> ast.Expression:
    """The parsed text, with references to users' own code as names."""
    found: dict[str, str] = {}

    def hide(reference: re.Match[str]) -> str:
        if not reference["place"]:
            return reference[0]
        found[f"own{len(found)}_"] = reference[0].strip()
        return next(reversed(found))

    with warnings.catch_warnings(action="error"):  # `0.1if` is only a SyntaxWarning
        tree = ast.parse(own.REFERENCE.sub(hide, text), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = found.get(node.id, node.id)
    return tree


def _huge(value: Any) -> bool:
    """Whether an integer does not fit into 64 bits."""
    return isinstance(value, int) and value.bit_length() > 64


def _missing(make: Callable[..., Any], positional: int, given: Iterable[str]) -> list[str]:
    """Required parameters that a call omits."""
    rest = list(inspect.signature(make).parameters.values())[positional:]
    empty = inspect.Parameter.empty
    return [one.name for one in rest if one.default is empty and one.name not in given]


def _fold(name: str) -> str:
    return name.replace("_", "").lower()


def _name(make: Callable[..., Any]) -> str:
    return getattr(make, "__name__", str(make))
