"""The costs of an algorithm, measured by running its hooks once.

Messages are measured on vectors without storage (torch's meta device); operations are counted one
by one, on short vectors. A cost is a sum of terms, each a rate times a unit:

    rate  K  local steps       unit  g   gradient of a mini-batch
          p  clients                 G   gradient over all samples of a client
                                     ns  n sums or differences (n: parameters of the model)
                                     nm  n products or quotients
                                     nr  n roots, signs, comparisons and all other operations

so {"Kg": 1, "Kns": 2} is K(g + 2ns). Operations on less than whole vectors are left out, and so is
weight decay, which belongs to the gradient.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from undrift.core import Algorithm, Client, Grad, RoundFacts, Struct, weighted_mean
from undrift.training.task import Task

Terms = dict[str, float]

SIZES = (8, 16)
"""two vector lengths; costs are linear in n, so two give the slope"""

RATES = ("K", "p²", "p", "")
UNITS = ("g", "G", "ns", "nm", "nr")


@dataclass(frozen=True)
class Size:
    """The size of records: entries of each vector, and the number of plain numbers."""

    vectors: tuple[tuple[str, int], ...]
    numbers: int

    @classmethod
    def of(cls, *records: Struct) -> Size:
        leaves = [leaf for record in records for leaf in record.leaves()]
        vectors = [(name, value.numel()) for name, value in leaves if isinstance(value, Tensor)]
        return cls(tuple(vectors), len(leaves) - len(vectors))

    @property
    def entries(self) -> int:
        return sum(size for _, size in self.vectors)

    def bytes(self, width: int = 4) -> int:
        """Size in bytes, with `width` bytes per vector entry and 8 per plain number."""
        return width * self.entries + 8 * self.numbers

    def multiples(self, n: int) -> tuple[int, int]:
        """Whole vectors of n entries, and single numbers beside them."""
        vectors, rest = divmod(self.entries, n)
        return vectors, rest + self.numbers


@dataclass(frozen=True)
class Messages:
    """All messages between the server and one client in a round."""

    down: Size
    up: Size


@dataclass(frozen=True)
class Storage:
    """What is kept between rounds, the model included."""

    server: Size
    client: Size


@dataclass(frozen=True)
class Operations:
    """What one client and the server compute in a round."""

    client: Terms
    server: Terms

    @property
    def per_step(self) -> float:
        """C: operations per parameter in a local step, beyond the gradient."""
        return vector_work(self.client, "K")


def messages(algorithm: Algorithm, n: int) -> Messages:
    """The messages of an algorithm for a model of n parameters."""
    if algorithm.regime != "federated":
        return Messages(Size((), 0), Size((), 0))
    played = _Rehearsal(algorithm, torch.empty(n, device="meta"))
    return Messages(Size.of(played.down), Size.of(played.answer, played.up))


def storage(algorithm: Algorithm, n: int) -> Storage:
    """What server and clients keep for a model of n parameters."""
    played = _Rehearsal(algorithm, torch.empty(n, device="meta"))
    return Storage(Size.of(played.server), Size.of(played.me))


def upload_forms(algorithm: Algorithm, x: Tensor) -> tuple[Struct, Struct]:
    """What a client answers to a survey and uploads, for models like x; values mean nothing."""
    played = _Rehearsal(algorithm, x)
    return played.answer, played.up


def operations(algorithm: Algorithm) -> Operations:
    """All operations of an algorithm in a round, as its code is written."""
    return Operations(client_work(algorithm), server_work(algorithm))


def client_work(algorithm: Algorithm) -> Terms:
    """What a client computes in a round."""
    return _slope(*(_Rehearsal(algorithm, torch.ones(n)).client_work for n in SIZES))


def server_work(algorithm: Algorithm) -> Terms:
    """What the server computes in a round.

    The terms are polynomials in p of degree 2 at most (where the server needs all updates at once),
    so three cohort sizes determine them. Those sizes are hundreds then, because some parts drop a
    percentage of the updates.
    """
    a = 100 if algorithm.holistic else 1
    played = [_Rehearsal(algorithm, torch.ones(n)) for n in SIZES]
    at = [_slope(*(one.server_work(p) for one in played)) for p in (a, 2 * a, 3 * a)]
    terms: dict[str, Fraction] = {}
    for unit in UNITS:
        first, second, third = (Fraction(cost.get(unit, 0)) for cost in at)
        square = (third - 2 * second + first) / (2 * a * a)
        each = (second - first) / a - 3 * a * square
        terms |= {unit: first - each * a - square * a * a, f"p{unit}": each, f"p²{unit}": square}
    return _terms(terms)


def vector_work(cost: Terms, rate: str = "") -> float:
    """All operations on vectors at one rate, in multiples of n."""
    return sum(cost.get(rate + unit, 0) for unit in ("ns", "nm", "nr"))


def add(*costs: Terms) -> Terms:
    """The sum of costs, without the terms that cancel."""
    return _terms({k: sum(c.get(k, 0) for c in costs) for cost in costs for k in cost})


def formula(cost: Terms) -> str:
    """A cost as text: "K(g + 2ns + nm) + ns"."""
    parts = []
    for rate in RATES:
        terms = [(unit, cost[rate + unit]) for unit in UNITS if cost.get(rate + unit)]
        bracket = rate and len(terms) > 1
        inside = [_term(times, unit if bracket else rate + unit) for unit, times in terms]
        parts += [f"{rate}({_sum(inside)})"] if bracket else inside
    return _sum(parts) or "0"


def forward_flops(model: nn.Module, example: Tensor) -> int:
    """Floating point operations of one sample's forward pass: 2 for each multiply-accumulate.

    `example` is a batch, of which the first sample is used, on a copy of the model.
    """
    total = 0

    def look(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        nonlocal total
        operation = func.overloadpacket
        if operation in flop_registry:
            total += flop_registry[operation](*args, **kwargs, out_val=out)
        elif operation is torch.ops.aten.mkldnn_rnn_layer:  # one layer of an LSTM
            inputs, *weights = args[:3]
            rows = inputs.numel() // inputs.shape[-1]
            total += 2 * rows * sum(weight.numel() for weight in weights)

    copied = copy.deepcopy(model).cpu().eval()
    with sdpa_kernel(SDPBackend.MATH), _Watch(look):  # attention as plain matrix products
        copied(example[:1].cpu())
    return total


@dataclass(frozen=True)
class RoundCost:
    """The floating point operations of clients, for one algorithm and one model.

    n        parameters of the model
    forward  operations of one sample's forward pass; a backward pass takes twice that
    work     the algorithm's terms for a client
    """

    n: int
    forward: int
    work: Terms

    @classmethod
    def of(cls, algorithm: Algorithm, task: Task, example: Tensor) -> RoundCost:
        """The cost of an algorithm on a task; `example` is a batch of its inputs."""
        return cls(len(task.x0), forward_flops(task.model, example), client_work(algorithm))

    def flops(self, steps: int, samples: int, full_samples: int, clients: int = 0) -> int:
        """Operations of a client, or of several if all their numbers are added up.

        steps         local steps
        samples       samples in their mini-batches
        full_samples  samples that the clients hold, for algorithms that need full gradients
        clients       number of clients; if given, work once per round is counted too: on vectors
                      before and after the steps, and a gradient of the first mini-batch
        """
        times = {term: self.work.get(term, 0) for term in ("Kg", "G", "g")}
        seen = times["Kg"] * samples + times["G"] * full_samples
        seen += times["g"] * clients * samples / max(steps, 1)
        vectors = vector_work(self.work, "K") * steps + vector_work(self.work) * clients
        return round(3 * self.forward * seen + vectors * self.n)


class _Rehearsal:
    """One client's round from model x, without data, with all operations counted."""

    def __init__(self, algorithm: Algorithm, x: Tensor) -> None:
        self.algorithm, self.groups = algorithm, (len(x),)
        self.tally = tally = _Tally()
        self.server = algorithm.init_server(x, self.groups)
        self.me = me = algorithm.init_client(x)
        self.down, self.answer = algorithm.download(self.server), Struct()
        facts = Client(
            t=3,
            n=50,
            steps=20,
            lr=0.1,
            lr0=0.2,
            n_mean=40.0,
            full_grad=tally.gradient("G"),
            first_grad=tally.gradient("g"),
        )
        with _Watch(tally.look):
            if algorithm.surveys:
                self.answer = algorithm.survey(self.down, me, facts)
                self.down |= self.answer
            local = algorithm.begin(self.down, me, facts)
            tally.rate = "K"
            d = algorithm.direction(tally.gradient("g"), local, self.down, me, facts)
            local = algorithm.move(local, d, self.down, facts)
            tally.rate = ""
            self.up, _ = algorithm.upload(local, self.down, me, facts)

    @property
    def client_work(self) -> Counter[str]:
        return self.tally.counts

    def server_work(self, clients: int) -> Counter[str]:
        """Counts of the server's operations for a cohort of this size."""
        tally = _Tally()
        w = [1 / clients] * clients
        facts = RoundFacts(
            t=3,
            lr=0.1,
            lr0=0.2,
            steps=20.0,
            cohort=clients,
            population=100,
            n_mean=40.0,
            groups=self.groups,
        )
        with _Watch(tally.look):
            ups = [self.algorithm.receive(self.server, self.up, self.groups) for _ in w]
            mean = weighted_mean([self.answer for _ in w], w)
            if self.algorithm.holistic:
                w = self.algorithm.reweigh(self.server, ups, w)
            mean = self.algorithm.combine(ups, w) | mean
            mean |= Struct(raw=mean.delta)
            d, _ = self.algorithm.update(self.server, mean, facts)
            _ = self.server.x - d
        return tally.counts


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, calls `look` for every tensor operation."""

    def __init__(self, look: Callable[..., None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.look = look

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.look(func, args, kwargs or {}, out)
        return out

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds


class _Tally:
    """Counts element operations on tensors, and gradients."""

    def __init__(self) -> None:
        self.rate = ""
        self.counts: Counter[str] = Counter()

    def gradient(self, unit: str) -> Grad:
        def gradient(y: Tensor) -> Tensor:
            self.counts[self.rate + unit] += 1
            return torch.ones_like(y)

        return gradient

    def look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        for letter, times in _work(func, args, kwargs, out):
            self.counts[f"{self.rate}n{letter}"] += times


ELEMENTWISE = {
    "add": "s",
    "sub": "s",
    "rsub": "s",
    "mul": "m",
    "div": "m",
    "reciprocal": "m",
    "square": "m",
    "addcmul": "smm",
    "addcdiv": "smm",
    "lerp": "ssm",
}
"""operations per element of the result; those not listed here or below count as r"""

REDUCTIONS = {
    "sum": ("", "s", ""),
    "mean": ("", "s", "m"),
    "dot": ("m", "s", ""),
    "linalg_vector_norm": ("m", "s", "r"),
}
"""operations per element that is read, that is added to another, and that is written"""

FREE = {
    "cat",
    "stack",
    "index",
    "clone",
    "copy",
    "_to_copy",
    "empty_like",
    "zeros_like",
    "ones_like",
    "_local_scalar_dense",
}
"""operations that create, copy or read without arithmetic; views are free as well"""


def _work(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> list[tuple[str, int]]:
    """Kind (s, m or r) and count of the element operations of one call."""
    name = func.overloadpacket.__name__.rstrip("_")
    read = max((arg.numel() for arg in args if isinstance(arg, Tensor)), default=0)
    if func.is_view or name in FREE or not read:
        return []
    written = (out[0] if isinstance(out, tuple) else out).numel()
    if name in REDUCTIONS:
        sizes = (read, read - written, written)
        return [
            (letter, size)
            for letters, size in zip(REDUCTIONS[name], sizes, strict=True)
            for letter in letters
        ]
    if name == "pow" and isinstance(args[1], int | float) and args[1] == 2:
        name = "square"
    if name not in ELEMENTWISE:
        return [("r", max(read, written))]
    scaled = "m" if kwargs.get("alpha", 1) != 1 else ""
    return [(letter, written) for letter in ELEMENTWISE[name] + scaled]


def _slope(small: Counter[str], large: Counter[str]) -> Terms:
    """Terms from the counts at two sizes: vector work per parameter, the rest unchanged."""
    n = SIZES[1] - SIZES[0]
    return _terms(
        {t: Fraction(large[t] - small[t], n) if "n" in t else small[t] for t in large | small}
    )


def _terms(cost: Mapping[str, Any]) -> Terms:
    """Terms in the order of RATES and UNITS, without zeros; integers where possible."""
    names = [rate + unit for rate in RATES for unit in UNITS]
    found = {name: cost[name] for name in names if cost.get(name)}
    return {k: int(v) if v == int(v) else float(v) for k, v in found.items()}


def _term(times: float, unit: str) -> str:
    return f"{'-' if times < 0 else ''}{unit}" if abs(times) == 1 else f"{times:g}{unit}"


def _sum(parts: list[str]) -> str:
    return " + ".join(parts).replace("+ -", "- ")
