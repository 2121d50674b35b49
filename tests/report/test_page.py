"""The report in a browser: what it draws, and that it stays by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import Visit, chromium
from tests.report.directory import A, B, make_run, page_of

HOSTILE = "<img src=x onerror=alert(1)>%{x}</script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def visit(browser: Any, folder: Path, **context: Any) -> Visit:
    (folder / "page.html").write_text(page_of(folder), encoding="utf-8")
    return Visit(browser, (folder / "page.html").as_uri(), **context)


def test_the_page_draws_every_kind_of_plot(browser: Any, tmp_path: Path) -> None:
    folder = make_run(tmp_path, lists=True, groups=["first", "second", HOSTILE])
    seen = visit(browser, folder)
    page = seen.page
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".plot").count() == page.locator(".plot.js-plotly-plot").count() > 20
    assert [line["y"][-1] for line in seen.lines("accuracy")] == pytest.approx([65, 85])
    heat = seen.plotted("group_gsi")
    assert heat[0]["z"][:2] == [[6, 11, 16, 21], [2.5] * 4]  # means over seeds, a row a group
    assert heat[0]["z"][2] == [None] * 4
    (median,) = [one for one in seen.plotted("client_accuracy") if not one["fill"]][:1]
    assert median["y"] == [10.0 * k for k in range(11)]  # the last round, worst client first
    assert page.locator('[data-kind="fan"] .scatterlayer').count() == 2
    assert seen.lines("coverage")[0]["y"] == [25, 50, 75, 100]
    assert [line["y"] for line in seen.lines("factor")] == [[None] * 4, [1.5] * 4]
    page.select_option('select[data-key="group"] >> nth=0', "first")
    assert [line["y"] for line in seen.lines("gsi")] == [[], [6, 11, 16, 21]]
    assert page.locator(".ytick", has_text="alert(2)").count() > 0  # a text
    assert seen.complaints == []
    assert seen.asked == [page.url]


def test_smoothing_and_axes(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, make_run(tmp_path))
    (raw, _), (lost,) = seen.lines("accuracy"), seen.lines("dropped")
    seen.press("smooth", "much")
    (smooth, _) = seen.lines("accuracy")
    assert smooth["y"][0] == raw["y"][0]
    assert max(smooth["y"]) < max(raw["y"])
    behind = [one["y"] for one in seen.plotted("accuracy") if one["opacity"] < 1]
    assert raw["y"] in behind
    assert seen.lines("dropped") == [lost]  # a count is not smoothed
    seen.press("smooth", "none")
    seen.press("x", "bytes")
    moved = seen.lines("accuracy")[0]
    assert moved["y"] == raw["y"]
    assert moved["x"] == [7.5, 15, 22.5, 30]  # kB
    seen.press("lines", "seeds")
    assert len(seen.lines("accuracy")) == 4
    seen.page.click(".chip >> nth=0")
    assert len(seen.lines("accuracy")) == 2
    assert seen.complaints == []


def test_balanced_accuracy_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, make_run(tmp_path, test=(90, 10)))
    seen.press("accuracy", "balanced")
    assert [line["y"][-1] for line in seen.lines("accuracy")] == pytest.approx([32.5, 42.5])
    layout = """document.querySelector('[data-metric="accuracy"]').layout"""
    assert seen.page.evaluate(f"{layout}.yaxis.title.text") == "Balanced test accuracy (%)"
    assert seen.page.evaluate(f"{layout}.shapes") == []  # the target is one of accuracy
    assert seen.complaints == []


def test_clients_are_sorted_and_searched(browser: Any, tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    lines = [f"{A},0,{i},{HOSTILE if i == 7 else f'c{i}'},{i},2,1,{i / 40}" for i in range(40)]
    heads = "algorithm,seed,client,name,samples,measured_on,loss,accuracy"
    (folder / "clients.csv").write_text("\n".join([heads, *lines, ""]), encoding="utf-8")
    seen = visit(browser, folder)
    rows = seen.page.locator(".clients tbody tr")

    def names() -> list[str]:
        return [text.split("\t")[0] for text in rows.all_inner_texts()]

    ends = [f"c{i}" for i in range(10)] + ["Show 20 more"] + [f"c{i}" for i in range(30, 40)]
    ends[7] = HOSTILE
    assert names() == ends  # the lowest accuracy first
    seen.page.click('.clients th:has-text("FedAvg") button')
    assert names()[0] == "c39"
    seen.page.click(".clients .gap button")
    assert len(names()) == 40
    seen.page.click('.clients th:has-text("Client") button')
    assert names()[1:4] == ["c0", "c1", "c2"]  # numbers within names count as such
    seen.page.fill(".clients input", "C3")
    assert names() == ["c3", *(f"c{i}" for i in range(30, 40))]
    assert seen.page.locator(".clients tfoot tr").all_inner_texts()[2].split("\t") == [
        *("Median", "20", "2", "50.0")
    ]
    assert seen.complaints == []


def test_it_fits_a_phone_by_day_and_night(browser: Any, tmp_path: Path) -> None:
    folder = make_run(tmp_path, lists=True)
    seen = visit(browser, folder, viewport={"width": 400, "height": 800})
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = """document.querySelector('[data-metric="accuracy"]').layout.font.color"""
    looks = []
    for scheme in ("light", "dark"):
        seen.page.emulate_media(color_scheme=scheme)
        seen.plotted("accuracy")
        while seen.page.evaluate(ink) in looks:  # until the plot is drawn again
            seen.page.wait_for_timeout(20)
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 400
        looks += [seen.page.evaluate(paper), seen.page.evaluate(ink)]
    assert len(set(looks)) == 4
    assert seen.complaints == []


def test_hostile_texts_stay_texts(browser: Any, tmp_path: Path) -> None:
    failure = {"algorithm": A, "seed": 0, "round": 15, "reason": HOSTILE}
    folder = make_run(
        tmp_path, labels={A: HOSTILE, B: "B"}, failures=[failure], name=HOSTILE, data=HOSTILE
    )
    seen = visit(browser, folder)
    page = seen.page
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator(".chip").first.inner_text() == HOSTILE
    assert page.locator("img").count() == 0
    seen.plotted("accuracy")
    page.hover('.plot[data-metric="accuracy"] .nsewdrag')
    page.wait_for_selector('.hoverlayer :text("alert(1)")')  # a text, in the label of a line
    assert seen.complaints == []
    assert seen.asked == [page.url]
