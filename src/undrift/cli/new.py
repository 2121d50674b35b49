"""`undrift new`: files to start from."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal

from undrift.config import UndriftError
from undrift.system.files import writing

Kind = Literal["algorithm", "part", "model", "data", "sampler", "adapter"]

_CHECK = "undrift check ./$file.py:$Name  # the laws of every algorithm, one by one"
_TEST = "python -m pytest test_$file.py  # the same, and the neutral setting"
NEXT: dict[Kind, tuple[str, ...]] = {
    "algorithm": (_CHECK, _TEST, "undrift run $file.toml  # beside five baselines"),
    "part": (_CHECK, _TEST, 'undrift compare adabest "./$file.py:$Name(adabest)"'),
    "model": ("undrift compare fedavg adabest --model ./$file.py:$Name",),
    "data": ('undrift compare fedavg adabest --data ./$file.py:load --partition "Natural()"',),
    "adapter": (
        "undrift conform ./$file.py:$Name  # FedAvg as it stands; your code goes into it",
        "python -m pytest test_$file.py  # the same",
    ),
    "sampler": ('undrift compare fedavg adabest --sampler "./$file.py:$Name(5)"',),
}
"""what to do with the files"""


def new(kind: Kind, name: str, *, into: Path = Path()) -> None:
    """Write a file to start from: an algorithm with its test and an experiment, a part, a model ...

    Example: undrift new algorithm Half

    This writes half.py (FedAvg with one parameter), test_half.py and half.toml, which compares it
    with five baselines, and prints what to do with them. Files that exist are never overwritten.

    Parameters
    ----------
    kind
        What to write.
    name
        Its name, such as Half or ServerNoise; the file is then half.py or server_noise.py.
    into
        Folder for the files; the current one if not given.
    """
    names = _names(name)
    templates = files("undrift.cli").joinpath("templates", kind)
    made = {
        into / _filled(one.name.removesuffix(".txt").replace("NAME", "$file"), names): _filled(
            one.read_text(encoding="utf-8"), names
        )
        for one in templates.iterdir()
    }
    for path in made:
        if path.exists():
            raise UndriftError(f"{path} exists already; give another name, or --into FOLDER")
    with writing(into):
        into.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        with writing(path), path.open("x", encoding="utf-8") as file:
            file.write(text)
    steps = [f"cd {into}"] if into != Path() else []
    steps += [_filled(step, names) for step in NEXT[kind]]
    sys.stdout.write(f"wrote {', '.join(sorted(map(str, made)))}; next:\n")
    sys.stdout.writelines(f"  {step}\n" for step in steps)


def _filled(template: str, names: dict[str, str]) -> str:
    return Template(template).substitute(names)


def _names(name: str) -> dict[str, str]:
    """The name of the class, and that of its file without .py."""
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise UndriftError(f"{name!r} is not a name for Python; write letters, such as Half")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if words in {*sys.stdlib_module_names, *keyword.kwlist, "numpy", "pytest", "torch", "undrift"}:
        raise UndriftError(f"{words}.py would hide Python's own {words}; give another name")
    title = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    return {"Name": title, "file": words}
