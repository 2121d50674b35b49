"""What affects rounding: the processor, its libraries, memory addresses, number of threads.

Intel's MKL, torch's matrix library on x86, picks other instructions for operands that are not
aligned to 64 bytes, and so rounds differently. `import undrift` turns that off with
`MKL_CBWR=AUTO,STRICT` in the environment. MKL reads it once, at its first product, which may have
been before the import. Therefore `aligned` also copies tensors from outside (files, NumPy) to
torch's own memory (decision 0005). Sums depend on the number of threads as well; small models gain
nothing from more than one, so `steady` fixes it.

Subnormal numbers, in float32 those nearer to 0 than 1.2e-38, slow many processors down. Squares of
gradients get there, if clients have few labels. So `steady` also takes them for 0 (decision 0017).
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
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

UNRECORDED = {"subnormals": "kept"}
"""What sessions did that do not record it."""


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
        "subnormals": _subnormals(),
    }


def recorded(told: Mapping[str, str]) -> Mapping[str, str]:
    """The facts that a session recorded, with those that were not yet among them; none if none."""
    return {**told, **UNRECORDED, **told} if told else {}


def change(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The warning for a run that is resumed where rounding may differ; None if it is the same."""
    known = recorded(before)
    other = [
        f"{name} {known[name]}, now {now[name]}"
        for name in now
        if known.get(name, now[name]) != now[name]
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
    with steady():
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


def _subnormals() -> str:
    """What `steady` does to them; not every processor can take them for 0."""
    with steady():
        return "kept" if keeps_subnormals() else "0"


def keeps_subnormals() -> bool:
    """Whether this thread computes with subnormal numbers."""
    return sys.float_info.min / 2 > 0


def settle() -> None:
    """Make torch use this thread only, and the thread take subnormal numbers for 0, from now on."""
    for kind in (np.float32, np.float64):
        np.finfo(kind)  # NumPy keeps it; older ones warn, if their first look finds subnormals 0
    torch.set_num_threads(1)
    torch.get_num_threads()  # fixes it: at first use, a thread takes over the number of that time
    torch.set_flush_denormal(True)


@contextmanager
def steady() -> Iterator[None]:
    """The settings of `settle` inside the block; those before it afterwards."""
    threads, kept = torch.get_num_threads(), keeps_subnormals()
    try:
        settle()
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(not kept)


def steadily(
    make: Callable[P, Generator[T, None, None]],
) -> Callable[P, Generator[T, None, None]]:
    """Decorate a generator function: its own code runs in `steady`, its consumer's does not."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        inner = make(*args, **kwargs)
        try:
            while True:
                with steady():
                    try:
                        value = next(inner)
                    except StopIteration:
                        return
                yield value
        finally:
            with steady():
                inner.close()

    return made
