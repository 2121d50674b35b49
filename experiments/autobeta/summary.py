"""Tables and figure of docs/autobeta.md from the results: `python -m experiments.autobeta.summary`.

explore.csv  seeds that rules and betas were chosen on
confirm.csv  seeds that came after the choice
hard.csv     long runs without anything that bounds the model
"""

from __future__ import annotations

import statistics

from benchmarks.tables import between
from experiments.autobeta.run import HERE, SIZES, SKEWS, fixed, table, tuned
from undrift.report.drawing import STYLE
from undrift.report.palette import ink

PAGE = HERE.parent.parent / "docs" / "autobeta.md"
FIGURE = PAGE.parent / "images" / "autobeta.png"

RULE = "AdaBest(beta='auto')"
BEFORE = "./rules.py:Bounded(beta='auto', more=0.8)"
CHOSEN = "./rules.py:Bounded(beta='auto', more=0.5)"
"""the rule's name while it was explored"""

LEFT = -2.8
"""end of the figure's axis; what is beyond it is written there"""

Cell = tuple[str, int, int, str]
"""task, clients per round, of how many, skew"""

Scores = dict[Cell, dict[str, dict[int, dict[str, str]]]]
"""setting → algorithm → seed → line of results"""


def read(name: str) -> Scores:
    found: Scores = {}
    for line in table(HERE / name):
        cell = (line["task"], int(line["p"]), int(line["clients"]), line["skew"])
        found.setdefault(cell, {}).setdefault(line["algorithm"], {})[int(line["seed"])] = line
    return found


def cells(found: Scores, task: str) -> list[Cell]:
    """The settings of a task in their order."""
    every = [(task, p, n, skew) for p, n in SIZES for skew in SKEWS]
    return [cell for cell in every if cell in found]


def score(runs: dict[int, dict[str, str]], seeds: list[int]) -> float:
    return statistics.mean(float(runs[seed]["score"]) for seed in seeds)


def paired(a: dict[int, dict[str, str]], b: dict[int, dict[str, str]]) -> tuple[float, float, int]:
    """Mean of a - b over the seeds of both, its standard error, and the number of seeds."""
    gaps = [float(a[seed]["score"]) - float(b[seed]["score"]) for seed in a if seed in b]
    error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
    return statistics.mean(gaps), error, len(gaps)


def told(gap: tuple[float, float, int]) -> str:
    mean, error, seeds = gap
    return f"{mean:+.2f} ± {error:.2f}" if seeds > 1 else f"{mean:+.2f}"


def comparison(found: Scores, task: str, rule: str) -> list[str]:
    """One row for each setting: the rule beside the tuned beta, and the rule before it."""
    lines = [
        "| clients per round | data | seeds | tuned β | its accuracy | rule | rule − tuned "
        "| p + 0.8 − tuned |",
        "|:--|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for cell in cells(found, task):
        runs, rival = found[cell], found[cell].get(fixed(tuned(*cell)), {})
        seeds = sorted(set(runs.get(rule, {})) & set(rival))
        if not seeds:
            continue
        before = told(paired(runs[BEFORE], rival)) if BEFORE in runs else "–"
        _, p, clients, skew = cell
        lines.append(
            f"| {p} of {clients} | {skew if skew == 'IID' else f'α {skew}'} | {len(seeds)} "
            f"| {tuned(*cell):g} | {score(rival, seeds):.2f} | {score(runs[rule], seeds):.2f} "
            f"| **{told(paired(runs[rule], rival))}** | {before} |"
        )
    return lines


def verdict(found: Scores, rule: str, *tasks: str) -> str:
    """How many settings are within 0.3 points of the tuned beta."""
    gaps = {
        cell: paired(found[cell][rule], found[cell][fixed(tuned(*cell))])[0]
        for task in tasks
        for cell in cells(found, task)
        if rule in found[cell] and fixed(tuned(*cell)) in found[cell]
    }
    within = sum(gap >= -0.3 for gap in gaps.values())
    worst = min(gaps, key=lambda cell: gaps[cell])
    return (
        f"Within 0.3 points of the tuned β in {within} of {len(gaps)} settings; on average "
        f"{statistics.mean(gaps.values()):+.2f}, at worst {gaps[worst]:+.2f} ({worst[1]} of "
        f"{worst[2]}, {worst[3] if worst[3] == 'IID' else f'α {worst[3]}'})."
    )


def explored(found: Scores) -> list[str]:
    """Every rule that was tried, on the settings that it was tried in, beside the best beta."""
    rules = sorted({name for runs in found.values() for name in runs if "auto" in name})
    lines = ["| rule | settings | mean gap | worst gap |", "|:--|--:|--:|--:|"]
    for name in rules:
        gaps = [
            paired(runs[name], runs[fixed(tuned(*cell))])[0]
            for cell, runs in found.items()
            if name in runs
            and cell[0] == "letters"
            and set(runs[name]) & set(runs[fixed(tuned(*cell))])
        ]
        shown = name.removeprefix("./rules.py:").replace("beta='auto', ", "")
        lines.append(
            f"| `{shown}` | {len(gaps)} | {statistics.mean(gaps):+.2f} | {min(gaps):+.2f} |"
        )
    return lines


def hard() -> list[str]:
    lines = [
        "| task | clients per round | data | rounds | algorithm | accuracy | largest ‖x‖ |",
        "|:--|:--|:--|--:|:--|--:|--:|",
    ]
    for line in sorted(
        table(HERE / "hard.csv"), key=lambda one: (one["task"], int(one["p"]), one["skew"])
    ):
        lines.append(
            f"| {line['task']} | {line['p']} of {line['clients']} | α {line['skew']} "
            f"| {line['rounds']} | `{line['algorithm']}` | {float(line['score']):.2f} "
            f"| {float(line['x_norm_max']):.1f} |"
        )
    return lines


def draw(confirmed: Scores) -> None:
    """Rule, and rule before it, minus the tuned beta, with two standard errors."""
    import matplotlib.pyplot as plt

    tasks = [task for task in ("letters", "cnn") if cells(confirmed, task)]
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1, len(tasks), figsize=(3.6 * len(tasks) + 0.8, 3.9), squeeze=False
        )
        for axes, task in zip(panels[0], tasks, strict=True):
            names = []
            for place, cell in enumerate(cells(confirmed, task)):
                runs = confirmed[cell]
                rival = runs.get(fixed(tuned(*cell)), {})
                for k, (name, label) in enumerate([(RULE, "rule"), (BEFORE, "with p + 0.8")]):
                    if set(runs.get(name, {})) & set(rival):
                        mean, error, _ = paired(runs[name], rival)
                        if mean < LEFT:
                            axes.text(LEFT, place + 0.6 * k - 0.15, f" ◂ {mean:.1f}",
                                      color=ink(k).colour, va="center")  # fmt: skip
                            continue
                        axes.errorbar(mean, place + 0.3 * k - 0.15, xerr=2 * error, fmt="os"[k],
                                      color=ink(k).colour, markersize=3.5, elinewidth=0.9,
                                      label=label if place == 0 else None)  # fmt: skip
                names.append(
                    f"{cell[1]} of {cell[2]}, {cell[3] if cell[3] == 'IID' else 'α ' + cell[3]}"
                )
            axes.axvspan(-0.3, 0.3, color="#E4E6EA", zorder=0)
            axes.axvline(0, color="#444444", linewidth=0.8)
            axes.set_yticks(range(len(names)), names)
            axes.set(ylim=(len(names) - 0.4, -0.6), xlim=(LEFT, 1.3))
            axes.grid(axis="y", visible=False)
            axes.set(title={"letters": "Letters, MLP", "cnn": "Letters, CNN"}[task],
                     xlabel="accuracy minus that of the tuned β (points)")  # fmt: skip
        figure.legend(
            *panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2
        )
        figure.set_layout_engine("constrained")
        figure.savefig(FIGURE, metadata={"Software": None})


def page(text: str) -> str:
    """The page with the tables of the results."""
    explore, confirm = read("explore.csv"), read("confirm.csv")
    parts = {"explored": comparison(explore, "letters", CHOSEN), "rules": explored(explore)}
    parts["all"] = [verdict(confirm, RULE, "letters", "cnn")]
    for task in "letters", "cnn":
        if cells(confirm, task):
            parts[task] = [verdict(confirm, RULE, task), "", *comparison(confirm, task, RULE)]
    for name, lines in (parts | {"hard": hard()}).items():
        text = between(text, name, "\n".join(lines))
    return text


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    draw(read("confirm.csv"))


if __name__ == "__main__":
    main()
