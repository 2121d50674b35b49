"""Compiles and loads the C++ library, once for each version of torch and each kind of CPU."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

from undrift.config import UndriftError
from undrift.system.cache import cache_folder, refuse_strangers
from undrift.system.files import replace_file

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
HEADERS = sorted(Path(__file__).parent.glob("*.h"))
NOT_LOADED = "the fast engine is not loaded from there"
FLAGS = ("-O3", "-march=native", "-std=c++20", "-fPIC")


def load() -> None:
    """Load `torch.ops.undrift`, compiled first if necessary; raises `UndriftError` if it fails."""
    if reason := problem():
        raise UndriftError(reason)


@cache
def problem() -> str | None:
    """Why the library cannot be loaded; None if it is. Tried once per process."""
    from filelock import FileLock  # here, as the import is slow

    try:
        library = folder() / f"undrift-{fingerprint()}.so"
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_strangers(library.parent, NOT_LOADED)
        if not _whole(library):
            with FileLock(library.with_suffix(".lock")):
                if not _whole(library):
                    _compile(library)
        refuse_strangers(library, NOT_LOADED)
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except UndriftError as error:
        return str(error)
    except OSError as error:
        return f"the fast engine cannot be loaded from {folder()} ({error}); set UNDRIFT_CACHE"
    return None


def folder() -> Path:
    """The folder of compiled libraries."""
    return cache_folder() / "native"


def _whole(library: Path) -> bool:
    """Whether the library exists and is complete: loading a truncated one kills the process."""
    try:
        expected = _checksum_file(library).read_bytes()
        return hashlib.sha256(library.read_bytes()).hexdigest().encode() == expected
    except FileNotFoundError:
        return False


def _checksum_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _compiler() -> str:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
    if compiler is None:
        raise UndriftError("there is no C++ compiler; install one (Debian: apt install g++)")
    return compiler


@cache
def fingerprint() -> str:
    """Hash of what the compiled library depends on: sources, torch, flags, platform and CPU."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else [platform.processor()]
    features = next((line for line in lines if line.startswith(("flags", "Features"))), lines[0])
    parts = [torch.__version__, platform.platform(), features, *FLAGS]
    text = "\n".join([*parts, *(file.read_text(encoding="utf-8") for file in SOURCES + HEADERS)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(library: Path) -> None:
    """Compile all sources in parallel, then link them."""
    compiler, root = _compiler(), Path(torch.__file__).parent
    sys.stderr.write(
        "undrift: compiling the fast engine, once for this version of torch (about half a minute "
        "to a minute)\n"
    )
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    includes = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        objects = [f"{work}/{source.stem}.o" for source in SOURCES]
        jobs = [
            [compiler, *FLAGS, abi, *includes, "-c", str(source), "-o", target]
            for source, target in zip(SOURCES, objects, strict=True)
        ]
        result = f"{work}/undrift.so"
        libraries = [f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{root / 'lib'}"]
        _run(jobs)
        _run([[compiler, "-shared", *objects, "-o", result, *libraries]])
        content = Path(result).read_bytes()
        replace_file(library, content)
        replace_file(_checksum_file(library), hashlib.sha256(content).hexdigest().encode())


def _run(commands: list[list[str]]) -> None:
    running = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        for command in commands
    ]
    told = [process.communicate()[1] for process in running]
    for process, errors in zip(running, told, strict=True):
        if process.returncode:
            first = next((line for line in errors.splitlines() if "error" in line), errors[:300])
            raise UndriftError(f"the fast engine could not be compiled: {first}")
