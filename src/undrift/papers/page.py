"""The page of all papers: verdicts first, then every item with its tables."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from undrift._version import __version__
from undrift.papers.catalogue import PAPERS
from undrift.papers.curves import draw_curves
from undrift.papers.figures import draw_claims, draw_outcome, svg
from undrift.papers.judging import Book, Outcome, summary
from undrift.papers.tables import (
    LEGEND,
    MARKS,
    Entry,
    Grid,
    grids,
    overview,
    paper_latex,
    paper_markdown,
    price,
    reruns,
)
from undrift.report.page.page import asset, fill
from undrift.system.files import replace_file, writing


def write_page(book: Book, out: Path) -> Path:
    """Write papers.html, and per paper its tables in Markdown and LaTeX; returns the page."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    beside = []
    for paper in _papers(book):
        for suffix, text in ("md", paper_markdown(book, paper)), ("tex", paper_latex(book, paper)):
            beside.append(out / f"{paper}.{suffix}")
            replace_file(beside[-1], text.encode())
    replace_file(
        out / "verdicts.md", ("\n".join(f"- {one}" for one in summary(book.counts)) + "\n").encode()
    )
    page = out / "papers.html"
    replace_file(page, render(book, beside).encode())
    return page


def render(book: Book, beside: list[Path]) -> str:
    """The page as HTML; everything is escaped."""
    template = Path(__file__).with_name("papers.html").read_text(encoding="utf-8")
    links = ", ".join(f'<a href="{escape(path.name)}">{escape(path.name)}</a>' for path in beside)
    return fill(
        template,
        {
            "css": asset("page.css")
            + Path(__file__).with_name("papers.css").read_text(encoding="utf-8"),
            "lead": "<br>".join(map(escape, summary(book.counts))),
            "claims": _drawn(draw_claims(book.outcomes)),
            "papers": "\n".join(_paper(book, paper) for paper in _papers(book)),
            "legend": escape(LEGEND),
            "files": f"Beside this page: {links}.",
            "footer": escape(f"Made by undrift {__version__}."),
        },
    )


def _papers(book: Book) -> list[str]:
    return [paper for paper in PAPERS if any(one.item.paper == paper for one in book.outcomes)]


def _paper(book: Book, paper: str) -> str:
    head = f'<h2 id="{paper}">{escape(PAPERS[paper])}</h2>'
    some = [one for one in book.outcomes if one.item.paper == paper]
    linked = {one.item.name for one in some if grids(one, book.rates)}
    body = [
        _table(overview(book, paper), linked, paper),
        *(_item(book, one) for one in some if one.item.name in linked),
    ]
    return "\n".join([head, *body])


def _item(book: Book, outcome: Outcome) -> str:
    item = outcome.item
    notes = [
        *item.notes,
        *dict.fromkeys(c.full.note for c, *_ in outcome.cells.values() if c.full.note),
    ]
    said = "".join(f"<li>{escape(note)}</li>" for note in notes)
    left = price(outcome, book.rates)
    parts = [
        f'<section class="item" id="{escape(item.paper)}-{escape(item.name)}">',
        f"<h3>{escape(item.name)} · {escape(item.source)}</h3>",
        f"<p>{escape(item.claim)}</p>",
        f'<ul class="note">{said}</ul>' if said else "",
        _drawn(draw_outcome(outcome)),
        _drawn(draw_curves(outcome)),
        *(_table(grid) for grid in grids(outcome, book.rates)),
        f'<p class="note">Left to run: {escape(left)}.</p>' if left else "",
    ]
    if item.kind == "experiment":
        parts.append(f'<div class="command"><pre>{escape(reruns(outcome))}</pre></div>')
    return "\n".join([*filter(None, parts), "</section>"])


def _drawn(figure: Any) -> str:
    return f'<div class="figure">{svg(figure)}</div>' if figure else ""


def _table(grid: Grid, linked: set[str] = frozenset(), paper: str = "") -> str:  # type: ignore[assignment]
    """A table; first cells link to the sections of items."""
    head = "".join(f'<th class="text">{escape(one)}</th>' for one in grid.head)
    lines = []
    for name, entries in grid.lines:
        text = escape(name)
        first = f'<a href="#{paper}-{text}">{text}</a>' if name in linked else text
        cells = "".join(f"<td>{_entry(one)}</td>" for one in entries)
        lines.append(f"<tr><th>{first}</th>{cells}</tr>")
    return (
        f'<div class="scroll"><table class="papers"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _entry(entry: Entry) -> str:
    kind = entry.word.replace(" ", "-")
    mark = f' <span class="mark">{MARKS[entry.word]}</span>' if entry.word in MARKS else ""
    ours = f'<div class="ours {kind}">{escape(entry.ours)}{mark}</div>' if entry.ours else ""
    return f"<div>{escape(entry.paper)}</div>{ours}" if entry.paper else ours
