"""Tables of outcomes: as cells of text, in Markdown and in LaTeX."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from undrift.papers import FULL
from undrift.papers.budget import Rates
from undrift.papers.catalogue import PAPERS
from undrift.papers.claims import AGREES, DISAGREES, NOT_RUN, OTHER, UNCLEAR, Verdict
from undrift.papers.item import Item
from undrift.papers.judging import Book, CellOutcome, Judged, Outcome, RowOutcome, summary
from undrift.report.tables import escape_latex, escape_markdown

MARKS = {AGREES: "✓", DISAGREES: "✗", UNCLEAR: "?", OTHER: "≁", NOT_RUN: "–"}
LEGEND = (
    "Paper's mean ± sd; ours with a 95 % interval over seeds. "
    "✓ agrees, ✗ disagrees, ? cannot tell, ≁ not comparable, – not run; * added by us"
)
LEFT = "left to run"
OURS = " *"
"""mark of what we added to a paper"""
NARROW = 6
"""rows of a paper's table up to which each is a column; else settings are"""


@dataclass(frozen=True)
class Entry:
    """A cell of a table: the paper's value, ours, and the verdict on it."""

    paper: str = ""
    ours: str = ""
    word: str = ""

    def __str__(self) -> str:
        mark = MARKS.get(self.word, "")
        ours = f"{self.ours} {mark}".strip()
        return " / ".join(filter(None, (self.paper, ours)))


@dataclass(frozen=True)
class Grid:
    """A table: its head, its lines, each with a name and entries."""

    head: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Entry, ...]], ...]


def values_grid(outcome: Outcome, rates: Rates) -> Grid | None:
    """Settings and rows, with the paper's values and ours; None if there is nothing in it."""
    item = outcome.item
    cells = [cell for scales in outcome.cells.values() for cell in scales]
    labels = list(dict.fromkeys(row.label for cell in cells for row in cell.cell.rows))
    words = {
        (j.cell.cell.id, j.cell.scale, j.what): j.verdict.word for j in outcome.values if j.cell
    }
    shown = [
        cell for cell in cells if cell.run or (cell.cell.id in item.printed and not cell.cell.ours)
    ]
    if not shown:
        return None

    def entry(cell: CellOutcome, label: str) -> Entry:
        printed = item.printed.get(cell.cell.id, {}).get(label)
        row = cell.rows.get(label)
        ours = "" if row is None else _ours(item, row)
        word = (
            words.get((cell.cell.id, cell.scale, label), OTHER if printed else "") if ours else ""
        )
        return Entry(_printed(printed) if printed else "", ours, word)

    def left(cell: CellOutcome) -> Entry:
        first = outcome.cells[cell.cell.id][0] is cell
        return Entry(time_text(cell.hours(rates)) if first and cell.left.trials else "")

    if len(labels) <= NARROW:
        lines = [
            (setting_of(cell), (*(entry(cell, one) for one in labels), left(cell)))
            for cell in shown
        ]
        return Grid(("setting", *labels, LEFT), tuple(lines))
    lines = [(label, tuple(entry(cell, label) for cell in shown)) for label in labels]
    lines.append((LEFT, tuple(map(left, shown))))
    return Grid(("row", *map(setting_of, shown)), tuple(lines))


def costs_grid(outcome: Outcome) -> Grid:
    """Printed and regenerated costs."""
    lines = [
        (
            f"{line}, {column}",
            (Entry(printed), Entry(ours=ours, word=AGREES if same else DISAGREES)),
        )
        for line, column, printed, ours, same in outcome.costs
    ]
    return Grid(("entry", "paper", "regenerated"), tuple(lines))


def claims_grid(outcome: Outcome) -> Grid | None:
    """Every claim with its verdict; those that were not run anywhere in one line each."""
    lines = []
    waiting: dict[tuple[str, bool], list[str]] = {}
    for one in outcome.claims:
        where = place_of(one)
        if one.verdict.word == NOT_RUN:
            waiting.setdefault((one.what, one.ours), []).append(where)
            continue
        verdict, gap = one.verdict, gap_text(outcome.item, one.verdict)
        judged = Entry(ours=verdict.word, word=verdict.word)
        lines.append((one.what, (Entry(where), Entry(gap), judged, Entry(verdict.why))))
    for (what, ours), places in waiting.items():
        several = f"{len(places)} settings{OURS if ours else ''}"
        where = places[0] if len(places) == 1 else several
        lines.append((what, (Entry(where), Entry(), Entry(ours=NOT_RUN, word=NOT_RUN), Entry())))
    if not lines:
        return None
    return Grid(("claim", "setting", "difference", "verdict", "note"), tuple(lines))


def overview(book: Book, paper: str) -> Grid:
    """The items of a paper in one table."""
    lines = []
    for one in book.outcomes:
        if one.item.paper == paper:
            verdicts = "; ".join(summary(one.counts)) or "nothing to run"
            lines.append(
                (
                    one.item.name,
                    (Entry(one.item.claim), Entry(verdicts), Entry(price(one, book.rates))),
                )
            )
    return Grid(("item", "claim", "verdicts", LEFT), tuple(lines))


def price(outcome: Outcome, rates: Rates) -> str:
    """What is left to run of an item, in trials and hours."""
    left = outcome.left
    if not left.trials:
        return ""
    why = f" ({left.why})" if left.why else ""
    return f"{left.trials:,} trials, {time_text(outcome.hours(rates))}{why}"


def time_text(hours: float | None) -> str:
    """A time as people say it."""
    if hours is None:
        return "time unknown"
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h" if hours >= 0.1 else "minutes"


def rerun(item: Item, cells: str = "", scale: str = FULL, seeds: int | None = None) -> str:
    """The command that runs an item, or cells of it, at a scale, with so many seeds."""
    chosen = ["--cells", cells] if cells else []
    at_scale = ["--scale", scale] if scale != FULL else []
    number = ["--seeds", str(seeds)] if seeds else []
    return shlex.join(["undrift", "paper", "run", item.id, *chosen, *at_scale, *number])


def reruns(outcome: Outcome) -> str:
    """The commands that run the cells that were run, or all if none was."""
    lines = []
    for cell in (cell for scales in outcome.cells.values() for cell in scales if cell.run):
        usual = len(cell.cell.rows[0].experiment.seeds)
        most = max(len(scores) for row in cell.rows.values() for scores in row.scores.values())
        more = most if most > usual else None
        lines.append(rerun(outcome.item, cell.cell.id, cell.scale, more))
    return "\n".join(lines or [rerun(outcome.item)])


def setting_of(cell: CellOutcome) -> str:
    """A setting by its name, with the scale that was run; * marks additions of ours."""
    scale = "" if cell.scale == FULL or not cell.run else f" (scale {cell.scale})"
    return cell.cell.id.replace(",", ", ") + scale + (OURS if cell.cell.ours else "")


def place_of(judged: Judged) -> str:
    """The setting of a claim; * marks rows of ours, too."""
    assert judged.cell is not None
    return setting_of(judged.cell).removesuffix(OURS) + (OURS if judged.ours else "")


def _printed(printed: tuple[float, float | None]) -> str:
    mean, sd = printed
    return f"{mean:g}" if sd is None else f"{mean:.2f} ± {sd:.2f}"


def _ours(item: Item, row: RowOutcome) -> str:
    """Our value with its interval, and how many seeds diverged."""
    found = row.estimate(*item.main)
    failed = f"{row.failed} diverged" if row.failed else ""
    if found is None:
        return failed
    digits = digits_of(item)
    text = f"{found.mean:{digits}}"
    if found.interval:
        low, high = found.interval
        text += f" [{low:{digits}}, {high:{digits}}]"
    chosen = f"({row.algorithm})" if len(row.row.algorithms) > 1 else ""
    seeds = "" if found.n >= item.seeds else f"({found.n} seed{'s' if found.n > 1 else ''})"
    return " ".join(filter(None, (text, seeds, failed, chosen)))


def digits_of(item: Item) -> str:
    """Format of the item's values."""
    return ".2f" if item.main[1].unit in ("%", "points") else ".3g"


def gap_text(item: Item, verdict: Verdict) -> str:
    """The difference of a claim's sides with its interval."""
    gap, digits = verdict.difference, f"+{digits_of(item)}"
    if gap is None or gap.interval is None:
        return ""
    low, high = gap.interval
    return f"{gap.mean:{digits}} [{low:{digits}}, {high:{digits}}]"


def in_markdown(grid: Grid) -> str:
    """A table in Markdown."""
    lines = [" | ".join(map(escape_markdown, grid.head)), " | ".join(":--" for _ in grid.head)]
    for name, entries in grid.lines:
        lines.append(
            " | ".join([escape_markdown(name), *(escape_markdown(str(e)) for e in entries)])
        )
    return "\n".join(f"| {line} |" for line in lines)


def in_latex(grid: Grid) -> str:
    """A table in LaTeX, with booktabs."""

    def line(cells: Sequence[str]) -> str:
        texts = [escape_latex(cell).replace("✓", r"$\checkmark$") for cell in cells]
        for sign, mark in (("✗", r"$\times$"), ("≁", r"$\nsim$"), ("∇", r"$\nabla$")):
            texts = [text.replace(sign, mark) for text in texts]
        return " & ".join(texts) + r" \\"

    return "\n".join(
        [
            rf"\begin{{tabular}}{{{'l' * len(grid.head)}}}",
            r"\toprule",
            line(grid.head),
            r"\midrule",
            *(line([name, *map(str, entries)]) for name, entries in grid.lines),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def grids(outcome: Outcome, rates: Rates) -> list[Grid]:
    """The tables of an item."""
    if outcome.item.kind == "cost":
        return [costs_grid(outcome)]
    return [one for one in (values_grid(outcome, rates), claims_grid(outcome)) if one]


def paper_markdown(book: Book, paper: str) -> str:
    """All that is known of a paper, in Markdown."""
    parts = [f"# {PAPERS[paper]}", in_markdown(overview(book, paper)), LEGEND + "."]
    for one in book.outcomes:
        if one.item.paper == paper and (tables := grids(one, book.rates)):
            notes = "\n".join(f"- {note}" for note in one.item.notes)
            parts += [f"## {one.item.id}", f"{one.item.source}: {one.item.claim}", notes]
            parts += map(in_markdown, tables)
            commands = f"```sh\n{reruns(one)}\n```"
            parts += [commands] if one.item.kind == "experiment" else []
    return "\n\n".join(filter(None, parts)) + "\n"


def paper_latex(book: Book, paper: str) -> str:
    """The tables of a paper in LaTeX."""
    parts = [r"% needs \usepackage{booktabs, amssymb}"]
    for one in book.outcomes:
        if one.item.paper == paper:
            parts += [
                f"% {one.item.id}: {one.item.source}\n{in_latex(t)}" for t in grids(one, book.rates)
            ]
    return "\n\n".join(parts) + "\n"
