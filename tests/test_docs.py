"""What the documentation shows can be done: its code runs, its commands exist, its links lead."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import pytest
from jinja2 import Template

import undrift
from tests.laws.test_identities import SAME
from undrift import algorithms, parts
from undrift.cli.app import application
from undrift.experiment.registry import algorithm
from undrift.runs.reading import FORMAT

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
OUTSIDE = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
TARGETS = re.compile(r"^([\w-]+):", flags=re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """The lines that a reader would type, as words."""
    typed = "".join(blocks(page, "sh"))
    for text in blocks(page, "console"):
        typed += "".join(f"{line[2:]}\n" for line in text.splitlines() if line[:2] == "$ ")
    for text in blocks(page, "bash"):  # scripts, of which only our own commands can be checked
        own = re.compile(r"^(?:srun |nohup )?(undrift [^>&\n]*)", flags=re.MULTILINE)
        typed += "".join(f"{line}\n" for line in own.findall(text.replace("\\\n", " ")))
    lines = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", typed.replace("\\\n", " "), flags=re.MULTILINE)
    lines = lines.replace(" && ", "\n")
    return [words for line in lines.splitlines() if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_code_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"__name__": page}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_exist(page: str) -> None:
    app, here = application(), ROOT
    for command, *arguments in commands(page):
        match command.rpartition("/")[2]:
            case "undrift":
                app.parse_args(arguments, exit_on_error=False, print_error=False)
            case "make":
                assert arguments[0] in TARGETS.findall(
                    (ROOT / "Makefile").read_text(encoding="utf-8")
                )
            case "pip":
                named = re.findall(r"(?:^\.|\.whl)\[(.+)\]$", "\n".join(arguments), flags=re.M)
                assert set(",".join(named).split(",")) <= {"", *EXTRAS}
                assert arguments[0] in {"install", "wheel"}
            case "python" if arguments[0] == "-m":
                assert find_spec(arguments[1])
            case "python":
                assert (here / arguments[0]).exists()
            case "cd":
                here = here / arguments[0]
            case other:
                pytest.fail(f"{page} shows {other}, which this test does not know")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (DOCS / page).read_text(encoding="utf-8")):
        assert "://" in target or (DOCS / page).parent.joinpath(target).exists(), target


def test_the_reference_has_every_public_name() -> None:
    pytest.importorskip("sphinx")
    kinds = run_path(str(DOCS / "conf.py"))["KINDS"]
    pages = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")]
    text = "".join(Template(page).render(kinds) for page in pages if "{eval-rst}" in page)
    named = re.findall(r"^\.\. (?:auto\w+|py:data):: undrift\.(\w+)$", text, flags=re.MULTILINE)
    assert set(undrift.__all__) - set(named) == set()


def test_every_algorithm_and_part_has_a_formula() -> None:
    text = (DOCS / "reference" / "formulas.md").read_text(encoding="utf-8")
    missing = [name for name in algorithms.__all__ if f"\n## {name}\n" not in text]
    missing += [name for name in parts.__all__ if name not in text]
    assert missing == [], f"docs/reference/formulas.md has no section '## NAME' for {missing}"


def test_the_map_of_the_family_shows_what_the_laws_hold() -> None:
    text = (DOCS / "reference" / "family.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- identities.*?-->\n(.*?)<!-- end", text, flags=re.DOTALL)
    assert shown
    laws = {(repr(algorithm(a)), repr(algorithm(b))): kind for a, b, kind in SAME}
    for line in shown[1].strip().splitlines()[2:]:
        a, b = (repr(algorithm(name)) for name in re.findall(r"`(.+?)`", line))
        kind = laws[a, b] if (a, b) in laws else laws[b, a]
        assert ("all clients" in line) == ("full_participation" in kind), line


def test_readme_names_every_algorithm_and_part() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("## What there is")[2].partition("\n\n## ")[0]
    named = set(re.findall(r"\w+", table))
    assert {*algorithms.__all__, *parts.__all__} - named == set()


def test_readme_shows_the_families() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- families.*?-->\n(.*?)\n<!-- end of families", text, flags=re.DOTALL)
    assert shown
    assert shown[1] == run_path(str(DOCS / "families.py"))["table"]()


def test_the_install_page_names_every_extra_and_this_version() -> None:
    text = (DOCS / "install.md").read_text(encoding="utf-8")
    assert [name for name in EXTRAS if f"`{name}`" not in text] == []
    assert set(re.findall(r"undrift-([\d.]+)-py3", text)) == {undrift.__version__}


def test_every_command_has_a_session_or_a_reason_for_none() -> None:
    shown = run_path(str(DOCS / "sessions.py"))
    app = application()
    named = re.findall(r"^##+ undrift (.+)$", app.generate_docs(), flags=re.MULTILINE)
    groups = {name.split()[0] for name in named if " " in name}
    assert {*shown["SESSIONS"], *shown["SILENT"]} == set(named) - groups
    for command, arguments in shown["SESSIONS"].items():
        words = shlex.split(f"{command} {arguments}")
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_the_pictures_of_drift_are_drawn_from_the_runs_beside_them() -> None:
    pytest.importorskip("matplotlib")
    drawing = run_path(str(DOCS / "pictures.py"))
    assert set(drawing["shown"]()) == {*drawing["SIGNS"], "norms"}


def test_what_we_found_has_the_tables_of_the_results() -> None:
    found = run_path(str(DOCS / "found.py"))
    text = found["PAGE"].read_text(encoding="utf-8")
    assert found["page"](text) == text, "python -m docs.found writes them"


def test_the_page_on_what_is_public_tells_the_format_of_runs() -> None:
    text = (DOCS / "public.md").read_text(encoding="utf-8")
    assert re.findall(r"format (\d+)", text) == [str(FORMAT)]


@pytest.mark.slow
def test_the_site_is_complete_and_needs_nothing_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(DOCS), str(tmp_path)]
    subprocess.run(build, check=True)
    pages = list(tmp_path.rglob("*.html"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert not [name for name in undrift.__all__ if f'id="undrift.{name}"' not in text]
    assert not OUTSIDE.findall(text)
    styles = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.css"))
    assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles)
