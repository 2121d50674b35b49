"""The results as tables in Markdown, for the terminal and for the documentation alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

MOST = 1.25
"""times our FedAvg that another rule may take on W1"""


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns line up in plain text, too."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = ([cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def between(page: str, mark: str, content: str) -> str:
    """The page with new content between its lines `<!-- mark -->` and `<!-- end of mark -->`.

    The first line may say more: `<!-- mark: where it comes from -->`.
    """
    part = re.compile(rf"(<!-- {mark}(?:: [^\n]*)? -->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    made, times = part.subn(lambda found: f"{found[1]}{content}\n{found[2]}", page)
    if times != 1:
        raise SystemExit(f"the page lacks the lines <!-- {mark} --> and <!-- end of {mark} -->")
    return made


def circumstances(*results: dict[str, Any]) -> str:
    """On what and when the results were made, once for all that agree."""
    line = (
        "{cpu} ({cores} cores, {vectors}, {memory GB} GB), Python {python}, torch {torch}, "
        "undrift {undrift}, {day}"
    )
    made = (
        line.format(**one["machine"], **one["versions"], day=one["date"][:10]) for one in results
    )
    return "Measured on " + "; ".join(dict.fromkeys(made)) + "."


def workload_results(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The part of the results that is about workloads, in their order."""
    return {name: results[name] for name in sorted(results) if name.startswith("W")}


def ratios(result: dict[str, Any]) -> dict[str, float]:
    """How many times as fast as the naive loop each engine is."""
    middle = {name: median(times) for name, times in result["seconds"].items()}
    return {name: middle["naive"] / seconds for name, seconds in middle.items()}


def fastest(result: dict[str, Any]) -> str:
    """The engine that needed the least time; the naive loop is none."""
    times = ratios(result)
    return max(result["workers"], key=lambda engine: times[engine])


def below_must(results: dict[str, Any]) -> list[str]:
    """A line for each workload whose fastest engine is not as fast as it must be."""
    lines = []
    for name, result in workload_results(results).items():
        engine = fastest(result)
        ratio, must = ratios(result)[engine], result["must"]
        if ratio < must:
            lines.append(f"{name}: {engine} is {ratio:.2f} × naive, must be {must:g}")
    return lines


def engine_tables(results: dict[str, Any]) -> str:
    """Workloads and engines, rules, and the time of import."""
    parts = []
    if found := workload_results(results):
        parts = [_engines(found), circumstances(*found.values())]
    if "rules" in results:
        parts += [_rules(results["rules"]), circumstances(results["rules"])]
    if "imports" in results:
        torch, ours = (
            median(one[name] for one in results["imports"]["seconds"])
            for name in ("torch", "undrift")
        )
        parts.append(f"`import torch` takes {torch:.2f} s, `import undrift` {ours:.3f} s more.")
    return "\n\n".join(parts)


def _engines(found: dict[str, dict[str, Any]]) -> str:
    heads = (
        *("work", "engine", "s / round", "× naive", "must", "aim", "% of sgemm"),
        *("memory, MB", "start-up, s"),
    )
    rows = []
    for name, result in found.items():
        best = fastest(result)
        for engine, ratio in ratios(result).items():
            seconds = median(result["seconds"][engine])
            workers = result["workers"].get(engine, 1)
            peak = median(result["gflop/s"][f"sgemm {workers}"])
            passes = f", {result['epochs']} epochs" if result["epochs"] > 1 else ""
            about = f"{name}: {result['about']}; {result['steps']:,} steps{passes}"
            targets = (f"{result['must']:g}", f"{result['aim']:g}") if engine == best else ("", "")
            rows.append(
                (
                    about if engine == "naive" else "",
                    engine,
                    f"{seconds:.3g}",
                    f"**{ratio:.2f}**" if engine == best else f"{ratio:.2f}",
                    *targets,
                    f"{100 * result['gflop'] / seconds / peak:.0f}",
                    *_alone(result["alone"].get(engine)),
                )
            )
    return markdown(heads, rows)


def _alone(one: dict[str, Any] | None) -> tuple[str, str]:
    """Memory, and seconds before rounds go at their own pace."""
    if one is None:
        return "", ""
    first, *others = one["rounds"]
    start = sum(one["imports"].values()) + max(0.0, first - min(others))
    return f"{one['memory MB']:.0f}", f"{start:.1f}"


def _rules(result: dict[str, Any]) -> str:
    base = median(result["seconds"]["FedAvg"])
    rows = []
    for name, times in result["seconds"].items():
        most = MOST + 1 / result["epochs"] if name == "MimeLite" else MOST
        limit = "" if name == "FedAvg" else f"{most:g}"
        rows.append((name, f"{median(times):.3g}", f"{median(times) / base:.2f}", limit))
    return markdown((f"rule, W1 on {result['engine']}", "s / round", "× FedAvg", "at most"), rows)


def scale_tables(results: dict[str, Any]) -> str:
    """Registered clients, sampled clients, and rows in the store."""
    parts = []
    if "registered" in results:
        parts += [_registered(results["registered"]), circumstances(results["registered"])]
    if "sampled" in results:
        parts += [_sampled(results["sampled"]), circumstances(results["sampled"])]
    if "touched" in results:
        parts += [_touched(results["touched"]), circumstances(results["touched"])]
    return "\n\n".join(parts)


def _registered(result: dict[str, Any]) -> str:
    long, short = result["seconds"].items()
    fewest = median(next(iter(long[1].values())))
    heads = (
        *("registered clients, 10 sampled", f"s / round, {long[0]}", "× the fewest"),
        *(f"s / round, {short[0]}", "memory, MB"),
    )
    rows = [
        (
            f"{int(count):,}",
            f"{median(times):.3g}",
            f"{median(times) / fewest:.2f}",
            f"{median(short[1][count]):.3g}",
            f"{result['memory MB'][count]:.0f}",
        )
        for count, times in long[1].items()
    ]
    return markdown(heads, rows)


def _sampled(result: dict[str, Any]) -> str:
    heads = ("sampled of 10,000, 1 step each", "rule", "s / round", "ms / client", "memory, MB")
    rows = [
        (
            f"{one['sampled']:,}",
            one["rule"],
            f"{median(one['seconds']):.3g}",
            f"{1000 * median(one['seconds']) / one['sampled']:.2f}",
            f"{one['memory MB']:.0f}",
        )
        for one in result["rows"]
    ]
    return markdown(heads, rows)


def _touched(result: dict[str, Any]) -> str:
    size, budget = result["bytes in a row"] / 1e3, result["budget"] / 1e9
    heads = (
        f"rows of {size:.0f} kB, budget {budget:g} GB",
        *("first write, ms / row", "plain file", "read + write later, ms / row", "plain file"),
        "memory, MB",
    )
    rows = [
        (
            f"{one['rows']:,}",
            *(
                f"{one[kind][way]:.2f}"
                for way in ("write", "read and write")
                for kind in ("store ms", "plain ms")
            ),
            f"{one['memory MB']:.0f}",
        )
        for one in result["rows"]
    ]
    note = f"\n\nStopped there: {result['left out']}." if result["left out"] else ""
    return markdown(heads, rows) + note
