"""How the documentation is built: `make docs`. Nothing is fetched, nothing comes from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import undrift
from undrift import algorithms, parts
from undrift.checks.laws import LAWS
from undrift.cli.app import application
from undrift.data.partition.partitions import PARTITIONS
from undrift.data.sources import SOURCES
from undrift.experiment.registry import OPTIMISERS
from undrift.federation.sampling import SAMPLERS
from undrift.measure.stopping import STOPS
from undrift.models import MODELS
from undrift.papers.catalogue import PAPERS
from undrift.papers.judging import Book, summary
from undrift.papers.tables import paper_markdown

sys.path.insert(0, str(Path(__file__).parent))

from families import families

project, author, release = "undrift", "The undrift authors", undrift.__version__
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

smartquotes = False

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "undrift"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style, pygments_dark_style = "a11y-light", "a11y-dark"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0072b2",
        "color-brand-content": "#0072b2",
        "color-added": "#00694d",
        "color-taken": "#a84a00",
    },
    "dark_css_variables": {
        "color-brand-primary": "#4fa8e0",
        "color-brand-content": "#4fa8e0",
        "color-added": "#35c79b",
        "color-taken": "#f28444",
    },
}

add_module_names = False
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"


def members(things: Iterable[Any]) -> list[str]:
    """What documents these classes and functions, each once."""
    made = []
    for thing in things:
        home = "undrift" if thing.__name__ in undrift.__all__ else thing.__module__
        kind = "autoclass" if isinstance(thing, type) else "autofunction"
        made.append(f"{kind}:: {home}.{thing.__name__}")
    return list(dict.fromkeys(made))


def public(names: Iterable[str]) -> list[str]:
    return members(getattr(undrift, name) for name in names)


KINDS: dict[str, Any] = {
    "algorithms": public(sorted(algorithms.__all__, key=str.lower)),
    "parts": public(sorted(parts.__all__, key=str.lower)),
    "optimisers": public(OPTIMISERS),
    "samplers": members(SAMPLERS.values()),
    "stops": members(STOPS.values()),
    "partitions": members(PARTITIONS.values()),
    "data": members(SOURCES.values()),
    "models": members(MODELS.values()),
    "families": families(),
    "laws": {name: law.__doc__ for name, law in LAWS.items()},
    "speed": Path(__file__).with_name("speed.md").exists(),
}
"""What the pages list."""


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Let pages list what there is."""
    if page == "reference/commands":
        source[0] += commands()
    elif page == "papers":
        source[0] += verdicts()
    elif page.startswith("reference/") or page == "howto/index":
        source[0] = app.builder.templates.render_string(source[0], KINDS)


def verdicts() -> str:
    """What came out of the papers' tables and figures."""
    book = Book.read()
    lines = "".join(f"- {line}\n" for line in summary(book.counts))
    made = [re.sub(r"^#", "###", paper_markdown(book, paper), flags=re.M) for paper in PAPERS]
    return "\n".join([lines, *made])


def commands() -> str:
    """The help of every command, with its example as code, and a session at the end."""
    script = [sys.executable, str(Path(__file__).with_name("sessions.py"))]
    sessions = json.loads(subprocess.check_output(script))
    _, *parts = re.split(r"^(?=##+ undrift )", application().generate_docs(), flags=re.M)
    made = ""
    for part in parts:
        made += re.sub(r"^Example: (.+?)\n\n", example, part, flags=re.M | re.S)
        name = part.splitlines()[0].partition("undrift ")[2]
        if name in sessions:
            made += f"```console\n{sessions[name]}\n```\n\n"
    return made


def example(found: re.Match[str]) -> str:
    """An example of a command, as code."""
    return "```sh\n" + found[1].replace("\n", " \\\n    ") + "\n```\n\n"


def bare(app: Sphinx, tree: nodes.document) -> None:
    """Differences without their head, which has the paths of this computer."""
    for block in tree.findall(nodes.literal_block):
        if block.get("language") == "udiff":
            text = block.astext().split("\n", 2)[2]
            block.replace_self(nodes.literal_block(text, text, language="udiff"))


def markup(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings, which are written to be read as they stand, as reStructuredText.

    Lines in columns become preformatted blocks, `Cost:` and its like a list, and signs that mean
    something to Sphinx lose their meaning.
    """
    made: list[str] = []
    was = "gap"
    for line in lines:
        field = re.match(r"(Cost|Deviations|Neutral|Reference): (.*)", line)
        if not line.strip():
            now = "columns" if was == "columns" else "gap"
        elif line.startswith((">>>", "...")) or was == "doctest":
            now = "doctest"
        elif re.search(r"\S {2,}\S", line) or line.startswith("  "):
            now = "columns"
        else:
            now = "field" if field or was == "field" else "text"
        if now != was:
            made += ["", ".. code-block:: text", ""] if now == "columns" else [""]
        if now == "columns":
            made.append(f"    {line}".replace("`", "").rstrip())
        elif now == "field":
            made.append(plain(f":{field[1]}: {field[2]}" if field else f"    {line}"))
        else:
            made.append(line if now == "doctest" else plain(line))
        was = now
    lines[:] = [*made, ""]


def plain(line: str) -> str:
    """A line in which only `code` is marked up."""
    pieces = re.split(r"(`[^`]+`)", line)
    for i, piece in enumerate(pieces):
        if i % 2:
            pieces[i] = f"`{piece}`"
        else:
            pieces[i] = re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", piece)
    return "".join(pieces)


def inline_formula(translator: Any, node: nodes.math) -> None:
    """A formula as MathML, which browsers draw themselves."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def formula(translator: Any, node: nodes.math_block) -> None:
    """A formula on lines of its own; lines are aligned at `&`."""
    text = node.astext()
    lines = rf"\begin{{aligned}}{text}\end{{aligned}}" if "&" in text else text
    translator.body.append(f'<div class="math">{tex2mathml(lines, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))
    app.connect("source-read", fill)
    app.connect("doctree-read", bare)
    app.connect("autodoc-process-docstring", markup)
