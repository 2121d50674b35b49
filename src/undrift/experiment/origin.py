"""Origin: the state that a forked experiment starts from, as a setting."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.config import Config, flag, text, whole


@dataclass(frozen=True)
class Origin(Config):
    """The state that every trial starts from: that of another run's algorithm, after a round.

    run        hash of the other run's experiment
    fresh      whether to take over the model only, with new algorithm state
    """

    run: str = text()
    algorithm: str = text()
    round: int = whole(ge=1)
    _: KW_ONLY
    fresh: bool = flag(False)
