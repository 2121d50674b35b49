"""What a conformance check found, as a table, as JSON or as an error."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["passes", "deviates", "not applicable", "fails"]


class NonConforming(AssertionError):
    """An implementation deviates; the message is the table."""


@dataclass(frozen=True)
class Finding:
    """The answer to one probe.

    says      what must hold
    outcome   "fails" if the adapter raised an error
    round     first round that deviates      quantity  what deviates in it: x, c, "c_i of client 2"
    equation  how the quantity is defined
    expected, found   its values             gap       largest difference, relative to the largest
                                                       value where that is above 1
    note      why a probe does not apply, or the error
    """

    probe: str
    says: str
    outcome: Outcome
    round: int | None = None
    quantity: str | None = None
    equation: str | None = None
    expected: list[float] | None = None
    found: list[float] | None = None
    gap: float | None = None
    note: str | None = None

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{self.outcome:<15} {self.probe:<22} {self.note or self.says}"]
        if self.outcome == "deviates":
            lines += [
                f"{'':<16}round {self.round}: {self.quantity} is off by {self.gap:.2g}",
                f"{'':<16}  expected {_shown(self.expected)}",
                f"{'':<16}  found    {_shown(self.found)}",
                f"{'':<16}  {self.equation}",
            ]
        return lines


@dataclass(frozen=True)
class Guess:
    """Known mistakes that, made in the reference, reproduce the numbers.

    mistakes  their names       says  in words
    scope     the probes whose numbers they reproduce; "all" if every one
    states    whether statistics are reproduced too, not only models
    """

    mistakes: tuple[str, ...]
    says: str
    scope: str = "all"
    states: bool = False


@dataclass(frozen=True)
class Report:
    """All findings about one implementation of one method. `print` shows them, `check` raises."""

    method: str
    settings: dict[str, float]
    tolerance: float
    findings: tuple[Finding, ...]
    guesses: tuple[Guess, ...]

    @property
    def ok(self) -> bool:
        """Whether no probe deviates or fails."""
        return not any(one.outcome in ("deviates", "fails") for one in self.findings)

    def check(self) -> Report:
        """Raise `NonConforming` if a probe deviates or fails; else return the report."""
        if not self.ok:
            raise NonConforming(f"\n{self}")
        return self

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: _plain(value) for name, value in asdict(self).items()} | {"ok": self.ok}

    def __str__(self) -> str:
        lines = [f"{self.method}, probe by probe (tolerance {self.tolerance:g}):"]
        lines += [line for finding in self.findings for line in finding.lines()]
        return "\n".join([*lines, *self.verdict()])

    def verdict(self) -> list[str]:
        """The last lines."""
        wrong = [one.probe for one in self.findings if one.outcome in ("deviates", "fails")]
        if not wrong:
            passed = sum(one.outcome == "passes" for one in self.findings)
            return [f"conforms: all {passed} probes that apply pass"]
        lines = [f"does not conform: {', '.join(wrong)}"]
        for k, guess in enumerate(self.guesses):
            scope = "" if guess.scope == "all" else f" in {guess.scope}"
            kind = "" if guess.states else " for x"
            told = (
                "or" if k and not scope else f"the numbers{scope} are those of the reference{kind}"
            )
            lines.append(f"{told} with {guess.says}")
        if not self.guesses and any(one.outcome == "deviates" for one in self.findings):
            lines.append("no known mistake reproduces the numbers, nor do two or three together")
        return lines


def _plain(value: Any) -> Any:
    """The same with None for what JSON cannot hold: NaN and infinity."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(values: list[float] | None) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values or ()) + "]"
