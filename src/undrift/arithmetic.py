"""What affects rounding: the processor, its libraries, memory addresses, number of threads.

Intel's MKL, torch's matrix library on x86, picks other instructions for operands that are not
aligned to 64 bytes, and so rounds differently. `import undrift` turns that off with
`MKL_CBWR=AUTO,STRICT` in the environment. MKL reads it once, at its first product, which may have
been before the import. Therefore `aligned` also copies tensors from outside (files, NumPy) to
torch's own memory (decision 0005). Sums depend on the number of threads as well; small models gain
nothing from more than one, so `one_thread` fixes it.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from undrift._version import __version__
from undrift.later import Tensor, np, torch

P = ParamSpec("P")
T = TypeVar("T")

ALIGNMENT = 64
"""bytes, as torch allocates"""


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, copied if its memory is not aligned to ALIGNMENT."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def misaligned(tensor: Tensor, by: int = 1) -> Tensor:
    """A copy shifted by `by` elements from alignment, to test whether that matters."""
    room = torch.empty(tensor.numel() + by, dtype=tensor.dtype, device=tensor.device)
    return room[by:].view(tensor.shape).copy_(tensor)


def facts() -> dict[str, str]:
    """Everything that affects rounding, besides a run's settings and engine."""
    matter, rounding = _products()
    return {
        "undrift": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "mkl": _mkl(),
        "products": "by address" if matter else "at any address",
        "rounding": rounding,
    }


def change(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The warning for a run that is resumed where rounding may differ; None if it is the same."""
    other = [
        f"{name} {before[name]}, now {now[name]}"
        for name in now
        if before.get(name, now[name]) != now[name]
    ]
    if not other:
        return None
    return (
        f"this run began with {'; '.join(other)}: from here on rounding may differ, so the result "
        "may differ in its last digits from that of an uninterrupted run"
    )


def addresses_matter() -> bool:
    """Whether the rounding of matrix products depends on addresses, in this process."""
    return _products()[0]


def _products() -> tuple[bool, str]:
    """Whether products depend on addresses, and a short hash of their bits.

    The hash tells processors with other instructions apart, and another matrix library on the same
    processor, or the same one told to use others of its instructions.
    """
    generator = torch.Generator().manual_seed(0)
    matter, bits = False, hashlib.sha256()
    with one_thread():
        for rows, inner, columns in (1, 50, 8), (16, 50, 10), (45, 100, 10), (45, 784, 100):
            a = torch.rand(rows, inner, generator=generator)
            b = torch.rand(columns, inner, generator=generator)
            product = a @ b.T
            matter |= not torch.equal(product, misaligned(a) @ misaligned(b).T)
            bits.update(product.numpy().tobytes())
    return matter, bits.hexdigest()[:8]


def _processor() -> str:
    """The processor's name, as far as the system provides it."""
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
    """Inside the block, torch computes with one thread; the number is restored after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_one_thread(
    make: Callable[P, Generator[T, None, None]],
) -> Callable[P, Generator[T, None, None]]:
    """Decorate a generator function: its own code runs with one thread, its consumer's does not."""

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
