"""Extensions: more seeds, rounds or algorithms for a run that has begun.

`run` in a folder with a smaller experiment runs what is missing. Nothing of a trial depends on the
number of rounds or on the other trials, so results are those of a run that was larger from the
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import algorithm
from undrift.runs.identity import stored_experiment
from undrift.runs.own_code import remember


def extended(
    run: Path,
    *,
    seeds: int | None = None,
    rounds: int | None = None,
    algorithms: Sequence[str] = (),
    code: Sequence[Path] = (),
) -> Experiment:
    """The experiment of a run, made larger; what it has already of these is not counted twice.

    seeds       number of seeds; the new ones are the smallest that the run does not have
    rounds      of each trial
    algorithms  to be added
    code        files of the user's own, as for `stored_experiment`
    """
    if seeds is None and rounds is None and not algorithms:
        raise UndriftError(
            "say what there shall be more of, such as --seeds 5, --rounds 300 or "
            '--algorithm "AdaBest(mu=0.05)"'
        )
    old = stored_experiment(run, code)
    remember(old.resolved().get("code", {}))
    for name, wanted, there in (
        ("seeds", seeds, len(old.seeds)),
        ("rounds", rounds, old.rounds),
    ):
        if wanted is not None and wanted < there:
            raise UndriftError(
                f"--{name} {wanted}: {run} has {there} already, and can only have more"
            )
    more = islice(
        (seed for seed in count() if seed not in old.seeds), max(0, (seeds or 0) - len(old.seeds))
    )
    new = dict.fromkeys([*old.algorithms, *map(algorithm, algorithms)])
    return replace(
        old,
        seeds=(*old.seeds, *more),
        rounds=rounds or old.rounds,
        algorithms=tuple(new),
    )
