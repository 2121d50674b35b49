"""Where a forked experiment begins."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.config import Config, flag, text, whole


@dataclass(frozen=True)
class Origin(Config):
    """The state that every trial starts from: that of an algorithm of another run, after a round.

    run        the other run: the hash of its experiment
    fresh      whether only the model is taken over, and what algorithms remember begins anew
    """

    run: str = text()
    algorithm: str = text()
    round: int = whole(ge=1)
    _: KW_ONLY
    fresh: bool = flag(False)
