"""The report: loads nothing, runs nothing of others, and is the same bytes every time."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.report.directory import A, B, make_run, page_of
from undrift.config import UndriftError
from undrift.report import merge, read_run, write_report
from undrift.report.drawing import draw_legend
from undrift.report.page.panels import MOST_POINTS, panel_data
from undrift.report.palette import inks


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report, with its run directory inside."""
    folder = tmp_path_factory.mktemp("report")
    return write_report(make_run(folder / "run"), folder).parent


class Loads(HTMLParser):
    """Collects every attribute by which a page could fetch something, and all scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if tag == "a" and name == "href":
                self.links.append(value or "")
            elif name in ("src", "href", "srcset", "data", "action", "poster", "background"):
                self.fetched.append((tag, value or ""))


def parsed(page: str) -> Loads:
    found = Loads()
    found.feed(page)
    return found


def test_page_loads_nothing(report: Path) -> None:
    page = (report / "report.html").read_text()
    found = parsed(page)
    assert found.fetched == []
    assert found.tags.count("script") == 3  # the data, plotly once, our own
    assert not {"link", "iframe", "img", "object", "form"} & set(found.tags)
    assert all(not link.startswith(("http", "/")) for link in found.links)
    assert all((report / link).is_file() for link in found.links)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page


HOSTILE = "<script>alert(1)</script>"


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    failure = {"algorithm": A, "seed": 0, "round": 15, "reason": f"{HOSTILE} & [[js]]"}
    folder = make_run(
        tmp_path,
        labels={A: HOSTILE, B: "<img src=x onerror=alert(1)>|`*_$x^"},
        failures=[failure],
        name=f"{HOSTILE}[[plotly]]",
        data=HOSTILE,
        command=f"undrift compare '</pre>{HOSTILE}'",
        **{f"<b>{HOSTILE}": HOSTILE},
    )
    page = write_report(folder).read_text()
    assert HOSTILE not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;[[plotly]]" in page
    assert parsed(page).tags.count("script") == 3
    data = re.search(r'id="data">(.*?)</script>', page)
    assert data is not None
    assert json.loads(data[1])["arms"][0]["label"] == HOSTILE
    table = (folder / "table.md").read_text()
    assert "<" not in table
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()[:4]}
    assert len(widths) == 1  # the bar inside a label makes no new column


def test_same_run_same_bytes(report: Path, tmp_path: Path) -> None:
    again = write_report(report / "run", tmp_path / "again").parent
    files = sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert {path.name for path in files} >= {
        *("report.html", "table.md", "table.tex", "table.csv", "seeds.csv"),
        *("loss.svg", "accuracy_compute.svg", "gsi.svg"),
        *("accuracy.png", "accuracy.svg", "accuracy_traffic.svg", "norms.svg", "drift.svg"),
        *("partition.svg", "overview.png"),
    }
    for path in files:
        assert (report / path).read_bytes() == (again / path).read_bytes(), path


def test_null_fields_are_left_out(tmp_path: Path) -> None:
    missing = ("h_norm", "h_cosine", "drift", "gsi", "bytes_down", "bytes_up", "flops", "seconds")
    folder = make_run(tmp_path, empty=(*missing, "train_loss", "cloud_accuracy", "dropped"))
    (folder / "partition.json").unlink()
    page = write_report(folder).read_text()
    assert 'data-metric="accuracy"' in page
    assert 'data-metric="drift"' not in page
    assert "data-partition=" not in page
    assert "Nothing to show in this run" in page
    assert not (folder / "figures" / "drift.png").exists()
    data = panel_data(read_run(folder))
    assert list(data["axes"]) == ["round"]
    assert data["partitions"] == []


def test_several_runs_in_one_page(tmp_path: Path) -> None:
    runs = [
        read_run(make_run(tmp_path / name, name=f"<{name}>", dropout=x))
        for name, x in (("a", 0.1), ("b", 0.2))
    ]
    (tmp_path / "b" / "partition.json").write_text('{"label_counts": [[1, 2]]}')
    runs[1] = read_run(tmp_path / "b")
    page = write_report(merge(runs), tmp_path / "out", formats=["pdf"], baseline="FedAvg")
    text = page.read_text()
    assert text.count("data-partition=") == 2
    assert "Labels of the clients of &lt;b&gt;" in text
    assert text.count('class="copy"') == 2
    assert "AdaBest, dropout=0.2" in text
    assert "Difference to the baseline" in text
    assert "<a>" not in text.split("<script")[0]
    figures = sorted(path.name for path in (tmp_path / "out" / "figures").iterdir())
    assert {"partition_1.pdf", "partition_2.pdf", "norms.pdf"} <= set(figures)
    assert {Path(name).suffix for name in figures} == {".pdf"}


def test_an_algorithm_keeps_its_colour_in_every_run(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path / n, name=n, dropout=k / 9)) for k, n in enumerate("abc")]
    arms = panel_data(merge(runs))["arms"]
    assert len({(arm["name"], arm["colour"]) for arm in arms}) == 2
    assert len({(arm["colour"], arm["dash"]) for arm in arms}) == len(arms) == 6


def test_long_curves_are_thinned_to_their_ends(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    lines = [
        json.dumps({"algorithm": A, "seed": 0, "round": t, "accuracy": 0.5})
        for t in range(1, 3 * MOST_POINTS)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    rounds = panel_data(read_run(folder))["arms"][0]["mean"]["round"]
    assert len(rounds) == MOST_POINTS
    assert (rounds[0], rounds[-1]) == (1, 3 * MOST_POINTS - 1)


def test_many_clients_and_wide_values(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    counts = np.random.default_rng(0).integers(0, 9, (700, 12)).tolist()
    (folder / "partition.json").write_text(json.dumps({"label_counts": counts}))
    text = (folder / "metrics.jsonl").read_text().replace('"x_norm": 21.0', '"x_norm": 1e30')
    (folder / "metrics.jsonl").write_text(text)
    assert "first 500 of 700" in write_report(folder).read_text()


def test_places_that_are_no_directories(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="not a directory"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(UndriftError, match="must be a directory"):
        write_report(make_run(tmp_path), tmp_path / "report.html")


@pytest.mark.parametrize("package", ["matplotlib", "plotly"])
def test_a_missing_extra_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UndriftError, match=re.escape('pip install ".[report]"')):
        write_report(make_run(tmp_path))


def test_a_run_that_failed_before_its_first_row_has_axes_for_its_empty_plots(
    tmp_path: Path,
) -> None:
    failure = {"algorithm": A, "seed": 0, "round": 1, "reason": "x is not finite"}
    run = read_run(make_run(tmp_path, {(A, 0): ()}, failures=[failure]))
    assert run.begun
    assert panel_data(run)["axes"] == {"round": {"title": "Round"}}


def many(folder: Path, algorithms: int, **settings: str) -> Path:
    names = [f"FedProx(mu={k}.0)" for k in range(algorithms)]
    return make_run(folder, {(name, 0): (0.1, 0.2, 0.3, 0.4) for name in names}, **settings)


def test_thirteen_curves_have_thirteen_colours_and_a_legend_beside_them(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    arms = read_run(many(tmp_path, 13)).arms
    assert arms[12].label == "FedProx(mu=12)"
    assert len({ink.colour for ink in inks(arms)}) == 13
    figure = Figure(figsize=(3.4, 2.3), layout="constrained")
    figure.subplots()
    draw_legend(figure, arms)
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] > 4
    assert figure.legends[0].get_window_extent().x0 > figure.axes[0].get_window_extent().x1


def test_one_algorithm_in_many_runs_has_many_colours(tmp_path: Path) -> None:
    runs = [read_run(many(tmp_path / n, 1, name=n, data=n)) for n in "abcdefghij"]
    assert len({style.colour for style in inks(merge(runs).arms)}) == 10


def test_words_for_what_is_missing_or_the_same(tmp_path: Path) -> None:
    folder = make_run(tmp_path, empty=("drift", "gsi"))
    (folder / "partition.json").write_text('{"label_counts": [[7, 7], [14, 0]]}')
    page = page_of(folder)
    assert "worst tenth of the clients; accuracy over clients, last round;" in page
    assert "2 clients of the first seed with 14 samples each." in page
