"""Tuning: settings chosen on validation clients, with the same budget for every algorithm.

    from undrift.tune import Study, tune
    study = Study(experiment=..., over={"AdaBest.mu": "log(0.001, 1)"}, trials=40)
    for event in tune(study, "studies/a"):
        print(event.label, event.settings, event.result)

space.py has ranges, knobs.py what they are ranges of; study.py the settings of a study, store.py
its trials on disk, search.py draws the next one, schedule.py says which is run next and how far,
running.py runs it, and outcome.py writes what was found.
"""

from undrift.tune.running import Event, tune
from undrift.tune.study import Study

__all__ = ["Event", "Study", "tune"]
