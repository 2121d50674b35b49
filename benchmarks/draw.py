"""Figures and tables of the documentation from the committed results: `python -m benchmarks.draw`.

They are in docs/speed.md and docs/howto/machines.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.lines import Line2D

from benchmarks.measure import load_results
from benchmarks.peers.__main__ import table
from benchmarks.peers.work import WORKS
from benchmarks.scaling import write_page
from benchmarks.tables import between, engine_tables, ratios, scale_tables, workload_results
from undrift.report.figures import PAGE, _save
from undrift.report.palette import ink

DOCS = Path(__file__).parent.parent / "docs"
PEERS = Path(__file__).parent / "peers" / "results.json"


def draw_engines(figure: Any, results: dict[str, Any]) -> None:
    """How many times as fast as the naive loop, for all workloads and engines."""
    found = workload_results(results)
    engines = list(dict.fromkeys(name for one in found.values() for name in one["workers"]))
    axes = figure.subplots()
    height = 0.8 / len(engines)
    for place, one in enumerate(found.values()):
        times = ratios(one)
        for k, engine in enumerate(engines):
            if engine in times:
                y, ratio = place - 0.4 + (k + 0.5) * height, times[engine]
                axes.barh(y, ratio - 1, height * 0.9, left=1, color=ink(k).colour)
                margin = axes.get_yaxis_transform()
                label = axes.text(1.01, y, f"{ratio:.1f}×", transform=margin, va="center")
                label.set(color=ink(k).colour, fontsize=7)
        ends = (place - 0.44, place + 0.44)
        axes.plot([one["must"]] * 2, ends, color="black", linewidth=1.4, zorder=3)
        axes.plot([one["aim"]] * 2, ends, color="black", linewidth=1, linestyle=":", zorder=3)
    axes.axvline(1, color="#444444", linewidth=0.8)
    axes.set_xscale("log", base=2)
    most = max(max(*ratios(one).values(), one["aim"]) for one in found.values())
    least = min(min(ratios(one).values()) for one in found.values())
    axes.set_xlim(min(0.9, 0.9 * least), 1.15 * most)
    ticks = [2**k for k in range(6) if 2**k < 1.15 * most]
    axes.set_xticks(ticks, ["naive loop", *(f"{tick}×" for tick in ticks[1:])])
    axes.set_yticks(
        range(len(found)), [f"{name}\n{one['about']}" for name, one in found.items()], fontsize=7
    )
    axes.set_ylim(len(found) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_title("Speed of a round beside a plain PyTorch loop (longer is better)")
    handles = [
        Line2D([], [], color=ink(k).colour, linewidth=6, label=engine)
        for k, engine in enumerate(engines)
    ]
    handles += [
        Line2D([], [], color="black", linewidth=1.4, label="must"),
        Line2D([], [], color="black", linewidth=1, linestyle=":", label="aim"),
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), handlelength=1.2)


def draw_scale(figure: Any, results: dict[str, Any]) -> None:
    """Registered clients, sampled clients and rows in the store."""
    panels = figure.subplots(1, 3)
    _draw_registered(panels[0], results["registered"])
    _draw_sampled(panels[1], results["sampled"])
    _draw_touched(panels[2], results["touched"])


def _draw_registered(axes: Any, result: dict[str, Any]) -> None:
    (kind, times), *_ = result["seconds"].items()
    counts = [int(count) for count in times]
    _draw_lines(axes, counts, {"": [median(some) for some in times.values()]})
    ends = zip(*((min(some), max(some)) for some in times.values()), strict=True)
    axes.vlines(counts, *ends, color=ink(0).colour, linewidth=0.8)
    axes.set_ylim(0, 1.1 * max(max(some) for some in times.values()))
    axes.set(xlabel="registered clients, 10 sampled", ylabel=f"seconds a round, {kind}")
    axes.set_title("Time: flat is better")


def _draw_sampled(axes: Any, result: dict[str, Any]) -> None:
    lines: dict[str, list[float]] = {}
    for one in result["rows"]:
        lines.setdefault(one["rule"], []).append(one["memory MB"])
    _draw_lines(axes, list(dict.fromkeys(one["sampled"] for one in result["rows"])), lines)
    axes.set(xlabel="sampled clients, 1 step each", ylabel="peak of memory, MB")
    axes.set_title("Memory: lower is better")


def _draw_touched(axes: Any, result: dict[str, Any]) -> None:
    lines = {
        label: [one[kind]["read and write"] for one in result["rows"]]
        for label, kind in (("store", "store ms"), ("plain file", "plain ms"))
    }
    _draw_lines(axes, [one["rows"] for one in result["rows"]], lines)
    axes.set(xlabel="clients in the store", ylabel="ms to read and write one")
    axes.set_title("Client state: lower is better")


def _draw_lines(axes: Any, counts: Sequence[int], lines: Mapping[str, Sequence[float]]) -> None:
    """Lines from zero over powers of ten, with a legend if they have names."""
    for k, (label, values) in enumerate(lines.items()):
        look = {"color": ink(k).colour, "linestyle": ink(k).line, "marker": "os"[k]}
        axes.plot(counts, values, label=label, markersize=3.5, **look)
    axes.set_xscale("log")
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    powers = [str(len(str(count)) - 1) for count in counts]
    axes.set_xticks(counts, [f"10{power.translate(raised)}" for power in powers])
    axes.minorticks_off()
    axes.set_ylim(0, 1.1 * max(max(values) for values in lines.values()))
    if all(lines):
        axes.legend(loc="upper left")


def main() -> None:
    page = DOCS / "speed.md"
    if not page.exists():
        raise SystemExit(f"{page} is not there; write the page with its markers first")
    engines, scale = load_results("engines"), load_results("scale")
    if not engines or not scale:
        raise SystemExit("results are lacking; run make bench and make bench-scale before")
    text = between(page.read_text(), "engines", engine_tables(engines))
    text = between(text, "scale", scale_tables(scale))
    if PEERS.exists():
        peers = json.loads(PEERS.read_text())
        found = [table(WORKS[name], peers[name]["table"]) for name in WORKS if name in peers]
        text = between(text, "peers", "\n\n".join(found))
    height = 0.8 + 0.55 * len(workload_results(engines))
    for name, size, draw, results in (
        ("speed", (PAGE, height), draw_engines, engines),
        ("scale", (PAGE, 2.3), draw_scale, scale),
    ):
        paths = [DOCS / "images" / f"{name}.{kind}" for kind in ("svg", "png")]
        _save(size, lambda figure, draw=draw, results=results: draw(figure, results), paths)
    page.write_text(text)
    write_page()


if __name__ == "__main__":
    main()
