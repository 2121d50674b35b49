"""Users' own code by name: `./mine.py:Half` is the class Half of a file, `package.module:Half` that
of a module.

Such code is executed when its name is read, so names are read only from where the user wrote them:
the command, a file of theirs, Python. `finding` is for names that come from somewhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path, PurePath
from traceback import extract_tb, format_list, walk_tb
from types import FrameType, ModuleType
from typing import Any

from undrift.config.errors import UndriftError, unknown

STRING = r'"(?:\\.|[^"\\])*"|' r"'(?:\\.|[^'\\])*'"
REFERENCE = re.compile(
    rf"""{STRING}|(?P<place>(?:\b[A-Za-z]:)?[^"'()\[\]{{}}+,=:]*?\.py|[A-Za-z_][\w.]*)"""
    r""":(?P<name>[A-Za-z_]\w*)"""
)
"""a quoted text, which is left alone, or a reference: a file or a module, a colon and a name"""

Find = Callable[[str], Path]
_find: ContextVar[Find | None] = ContextVar("find", default=None)
_modules: dict[tuple[Path, str], ModuleType] = {}
_used: dict[str, tuple[Path, str]] = {}
_references: dict[Any, str] = {}


def references(text: str) -> Iterator[re.Match[str]]:
    """All references in a text, outside of quotes."""
    return (found for found in REFERENCE.finditer(text) if found["place"])


def load(place: str, name: str) -> Any:
    """What a file or a module calls by this name; the code is executed once for each content."""
    place = normal(place)
    path = (_find.get() or find)(place)
    content = _read(place, path)
    checksum = hashlib.sha256(content).hexdigest()
    module = _modules.get((path, checksum))
    if module is None:
        module = _execute(place, path, content, checksum)
        _modules[path, checksum] = module
    _used[place] = path, checksum
    inside = getattr(module, "__name__", place)
    mine = {key: one for key, one in vars(module).items() if _module(one) == inside}
    wanted = vars(module).get(name)
    if not callable(wanted):
        raise UndriftError(f"{place}: " + unknown("class or function", name, mine))
    if not hasattr(wanted, "__qualname__"):
        raise UndriftError(f"{place}:{name} is an object; name its class, or a function")
    for key, one in (mine | {name: wanted}).items():
        if callable(one) and not _ours(one):
            _references.setdefault(one, f"{place}:{key}")
    return wanted


def modules() -> list[ModuleType]:
    """The modules of users' own code, without undrift and other packages that were installed."""
    folders = [
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")
    ]
    return [
        module
        for (path, _), module in _modules.items()
        if module.__name__.partition(".")[0] != "undrift"
        and not any(path.is_relative_to(folder) for folder in folders)
    ]


def normal(place: str) -> str:
    """One spelling for a file: ./mine.py for mine.py, with slashes."""
    place = place.strip()
    if not place.endswith(".py"):
        return place
    path = PurePath(os.path.normpath(place)).as_posix()
    return path if Path(place).is_absolute() or path.startswith("..") else f"./{path}"


def find(place: str) -> Path:
    """The source file of a place, which need not exist."""
    if place.endswith(".py"):
        return Path(place).resolve()
    inside = Path(*place.split("."))
    for folder in (*map(Path, sys.path), Path.cwd()):
        for path in (folder / inside.with_suffix(".py"), folder / inside / "__init__.py"):
            if path.is_file():
                return path.resolve()
    raise UndriftError(
        f"no module is called {place!r}; give a file such as ./{inside.name}.py:NAME, or install it"
    )


@contextlib.contextmanager
def finding(find: Find) -> Iterator[None]:
    """Within, files are those that `find` says, which refuses what must not be executed."""
    token = _find.set(find)
    try:
        yield
    finally:
        _find.reset(token)


def reference(thing: Any) -> str | None:
    """The name of a user's own class or function, if it has one from which it can be loaded."""
    if _ours(thing):
        return None
    if thing in _references:
        return _references[thing]
    module, name = _module(thing), thing.__qualname__
    importable = getattr(sys.modules.get(module), name, None) is thing
    lasting = REFERENCE.fullmatch(f"{module}:{name}") and module not in ("__main__", "builtins")
    return f"{module}:{name}" if importable and lasting else None


@contextlib.contextmanager
def blamed(about: Callable[[], str] = str, algorithm: str = "") -> Iterator[None]:
    """Errors of users' own code, when it is called, as a sentence and the lines of their files.

    about      says what was being done, for the sentence
    algorithm  text of the one that runs; if it is the user's, errors of undrift come from what its
               hooks returned
    """
    try:
        yield
    except (UndriftError, MemoryError):
        raise
    except Exception as error:
        places = {str(path): place for place, (path, _) in _used.items()}
        trace = extract_tb(error.__traceback__)
        lines = [line for line in trace if line.filename in places]
        returned = not lines and any(references(algorithm))
        if not (lines or returned) or type(error).__name__ == "OutOfMemoryError":  # torch's
            raise
        doing = f" ({told})" if (told := about()) else ""
        if returned:
            where, lines = f"{algorithm} returned what does not fit", trace[-1:]
            doing += f"; `undrift check {shlex.quote(algorithm)}` tries its hooks"
        else:
            where = f"{places[lines[-1].filename]}, line {lines[-1].lineno}, in {lines[-1].name}"
        shown = "".join(format_list(lines)).rstrip()
        raise UndriftError(f"{where}: {type(error).__name__}: {error}{doing}\n{shown}") from error


def code(texts: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of every file or module that texts refer to, as it was executed."""
    places = {normal(found["place"]) for text in texts for found in references(text)}
    return {place: _origin(place)[1] for place in sorted(places)}


def path(place: str) -> Path:
    """The file that was executed for a place."""
    return _origin(place)[0]


def _origin(place: str) -> tuple[Path, str]:
    """Path and checksum of what was executed, by us or, for a module, by Python's own import."""
    if place not in _used:
        there = find(place)
        _used[place] = there, hashlib.sha256(_read(place, there)).hexdigest()
    return _used[place]


def _execute(place: str, path: Path, content: bytes, checksum: str) -> ModuleType:
    if not place.endswith(".py"):
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        with _blame(place, path):
            return importlib.import_module(place)
    name = f"{path.stem}_{checksum[:12]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # for what it imports from beside it
    sys.modules[name] = module
    try:
        with _blame(place, path):
            exec(compile(content, str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _blame(place: str, path: Path) -> Iterator[None]:
    """Errors of the user's code as a sentence with the line."""
    try:
        yield
    except UndriftError:
        raise
    except SyntaxError as error:
        raise UndriftError(f"{place}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        lines = [line for frame, line in walk_tb(error.__traceback__) if _file(frame) == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise UndriftError(f"{place}{where}: {type(error).__name__}: {error}") from error


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _read(place: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UndriftError(
            f"{place} is not there; paths begin in the current folder, {Path.cwd()}"
        ) from None
    except OSError as error:
        raise UndriftError(f"{place} cannot be read: {error.strerror}") from None


def _ours(thing: Any) -> bool:
    return _module(thing).partition(".")[0] == "undrift"


def _module(thing: Any) -> str:
    return getattr(thing, "__module__", None) or ""
