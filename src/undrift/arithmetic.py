"""What decides the last bits of results: the processor, its libraries, and memory addresses.

Intel's MKL, which multiplies torch's matrices on x86, picks other instructions for operands that
do not lie at a multiple of 64 bytes, and so rounds otherwise. `import undrift` asks it not to, by
`MKL_CBWR=AUTO,STRICT` in the environment. MKL reads that once, at its first product: a process that
multiplied before keeps its habits. Therefore tensors that come from outside (files, NumPy) are also
moved to memory of torch's own by `aligned` (decision 0005). Sums depend on the number of threads
as well: small models gain nothing from more than one, so there is `one_thread`.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

from undrift._version import __version__
from undrift.later import Tensor, torch

P = ParamSpec("P")
T = TypeVar("T")

ALIGNMENT = 64
"""bytes, as torch allocates"""


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, where torch would have put it: a copy if it lies elsewhere."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def misaligned(tensor: Tensor, by: int = 1) -> Tensor:
    """A copy that lies `by` elements beyond where torch would put it, to see whether it matters."""
    room = torch.empty(tensor.numel() + by, dtype=tensor.dtype, device=tensor.device)
    return room[by:].view(tensor.shape).copy_(tensor)


def facts() -> dict[str, str]:
    """All on which the bits of a run depend beside its settings and its engine."""
    return {
        "undrift": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "mkl": _mkl(),
        "products": "by address" if addresses_matter() else "at any address",
    }


def change(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """What to tell people whose run goes on where numbers are rounded otherwise."""
    other = [
        f"{name} {before[name]}, now {now[name]}"
        for name in now
        if before.get(name, now[name]) != now[name]
    ]
    if not other:
        return None
    return (
        f"this run began with {'; '.join(other)}: from here on numbers may be rounded otherwise, "
        "and the end may differ in its last digits from a run that stayed in one place"
    )


def addresses_matter() -> bool:
    """Whether matrix products round by the addresses of their operands, in this process."""
    generator = torch.Generator().manual_seed(0)
    for rows, inner, columns in (1, 50, 8), (16, 50, 10), (45, 100, 10):
        a = torch.randn(rows, inner, generator=generator)
        b = torch.randn(columns, inner, generator=generator)
        if not torch.equal(a @ b.T, misaligned(a) @ misaligned(b).T):
            return True
    return False


def _processor() -> str:
    """The name of the processor, as far as the system tells it."""
    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text(encoding="utf-8", errors="replace") if cpu.exists() else ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _mkl() -> str:
    """The version of MKL that torch was built with."""
    found = re.search(r"Math Kernel Library Version ([\d.]+)", torch.__config__.show())
    return found[1] if found else "none"


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside the block torch computes with one thread; afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_one_thread(
    make: Callable[P, Generator[T, None, None]],
) -> Callable[P, Generator[T, None, None]]:
    """A generator whose own code has one thread, and whose consumer has as many as it likes."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        inner = make(*args, **kwargs)
        try:
            while True:
                with one_thread():
                    try:
                        value = next(inner)
                    except StopIteration:
                        return
                yield value
        finally:
            with one_thread():
                inner.close()

    return made
