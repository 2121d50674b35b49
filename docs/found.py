"""The tables and pictures of docs/found.md, and README's: the papers' claims that were run.

python -m docs.found    # writes them
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.tables import between
from undrift.papers import FULL
from undrift.papers.claims import NOT_RUN
from undrift.papers.curves import draw_curves
from undrift.papers.figures import draw_claims, draw_outcome, svg
from undrift.papers.judging import Book, Outcome, summary
from undrift.papers.tables import Entry, Grid, gap_text, in_markdown, setting_of

PAGE = Path(__file__).with_name("found.md")
IMAGES = PAGE.with_name("images")
README = Path(__file__).parents[1] / "README.md"

FINDINGS = {
    "adabest": "adabest/table2 adabest/figure3",
    "norm": "adabest/figure4 adabest/figure6",
    "beta": "adabest/figure7",
    "fedglad": "fedglad/table1 fedglad/table7 fedglad/table2 fedglad/table10 fedglad/table9",
    "cohorts": "fedglad/figure4 fedglad/figure5",
    "lengths": "fedglad/table4 fedglad/figure8 fedglad/figure9",
    "factor": "fedglad/figure6 fedglad/figure7",
    "scaffold": "fedglad/table8",
    "fedgbo": "fedgbo/figure1",
}
"""mark in the page → the items whose claims stand there"""


def table(outcome: Outcome) -> str:
    """Claims and settings that were run, the longer side down; "" if there are none."""
    entries = {
        (one.what, setting_of(one.cell)): Entry(
            ours=gap_text(outcome.item, one.verdict) or one.verdict.why, word=one.verdict.word
        )
        for one in outcome.claims
        if one.cell and one.verdict.word != NOT_RUN
    }
    if len({place for _, place in entries}) > len({what for what, _ in entries}):
        entries = {(place, what): entry for (what, place), entry in entries.items()}
    down, across = (list(dict.fromkeys(key[side] for key in entries)) for side in (0, 1))
    lines = ((one, tuple(entries.get((one, other), Entry()) for other in across)) for one in down)
    return in_markdown(Grid((outcome.item.id, *across), tuple(lines))) if entries else ""


def page(text: str) -> str:
    """The page with the tables of the results."""
    tables = {one.item.id: table(one) for one in Book.read().outcomes}
    for mark, ids in FINDINGS.items():
        some = filter(None, (tables[id] for id in ids.split()))
        text = between(text, mark, "\n\n".join(some) or "*Not run yet.*")
    return text


def readme(text: str) -> str:
    """README with the number of claims by verdict."""
    return between(text, "verdicts", "\n".join(f"- {one}" for one in summary(Book.read().counts)))


def pictures() -> dict[str, str]:
    """AdaBest's Table 2 and Figure 4, FedGBO's Figure 1, and all claims, as SVG."""
    book = Book.read()
    found = {one.item.id: one for one in book.outcomes}
    table2 = found["adabest/table2"]
    full = {id: some for id, some in table2.cells.items() if some[0].scale == FULL}
    drawn = {
        "letters": draw_outcome(replace(table2, cells=full), "emnist-l,*"),
        "growth": draw_curves(found["adabest/figure4"]),
        "fedgbo": draw_curves(found["fedgbo/figure1"], "cifar100"),
        "claims": draw_claims(book.outcomes),
    }
    return {name: svg(figure) for name, figure in drawn.items()}


if __name__ == "__main__":
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in pictures().items():
        (IMAGES / f"{name}.svg").write_text(text, encoding="utf-8")
