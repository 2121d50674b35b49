"""`undrift watch` in a browser: it keeps up with runs, and shows what they say as text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import Visit, chromium
from tests.report.directory import ACCURACY, ROUNDS, A, B, make_run
from undrift.report.watch.folder import Folder
from undrift.report.watch.server import PageServer
from undrift.system.lock import Lock

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The page of a folder of runs, which is still empty."""
    (tmp_path / "runs").mkdir()
    with PageServer(Folder(tmp_path / "runs")) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def box(name: str) -> str:
    return f'.run[data-name="{name}"] input'


def test_a_live_run_is_followed(browser: Any, url: str, tmp_path: Path) -> None:
    short = {key: values[:2] for key, values in ACCURACY.items()}
    live = make_run(tmp_path / "runs" / "live", short, lists=True)
    lock = Lock(live)
    seen = Visit(browser, url)
    page = seen.page
    assert len(seen.lines("accuracy")[0]["x"]) == 2
    assert "running" in page.locator(".run").inner_text()
    seen.press("x", "bytes")
    page.focus(box("live"))
    page.evaluate("""Plotly.relayout(document.querySelector('[data-metric="accuracy"]'),
        {"xaxis.range": [1, 9]})""")
    with page.expect_response("**/runs") as quiet:
        pass
    assert quiet.value.status == 304  # nothing new, nothing sent
    assert not [one for one in seen.asked if "/view" in one][1:]
    with (live / "metrics.jsonl").open("a") as file:
        for (name, seed), values in ACCURACY.items():
            row = {"algorithm": name, "seed": seed, "round": ROUNDS[2], "accuracy": values[2]}
            file.write(json.dumps(row | {"bytes_down": 20_000, "bytes_up": 10_000}) + "\n")
    seen.until(
        """document.querySelector('[data-metric="accuracy"]').data.some((t) => t.x.length === 3)"""
    )
    assert seen.lines("accuracy")[0]["y"][-1] == pytest.approx(55)
    assert page.evaluate(
        """document.querySelector('[data-metric="accuracy"]').layout.xaxis.range"""
    ) == [1, 9]  # the zoom is kept
    assert page.evaluate("document.activeElement.type") == "checkbox"  # and so is the focus
    lock.close()
    make_run(tmp_path / "runs" / "later")
    page.wait_for_selector(box("later"))
    page.wait_for_selector('.run[data-name="live"].interrupted')
    assert seen.complaints == []
    assert all(one.startswith(url) for one in seen.asked)


def test_runs_are_chosen_and_overlaid(browser: Any, url: str, tmp_path: Path) -> None:
    for dropout, name in enumerate(("one", "two")):
        make_run(tmp_path / "runs" / name, name=name, dropout=dropout)
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "experiment.json").write_text("{")
    seen = Visit(browser, f"{url}#run=one&smooth=some")
    page = seen.page
    assert len(seen.lines("accuracy")) == 2
    assert page.get_attribute('[data-value="some"]', "aria-pressed") == "true"
    page.check(box("two"))
    seen.until("document.querySelectorAll('.chip').length === 4")
    assert len(seen.lines("accuracy")) == 4
    assert page.evaluate("location.hash") == "#run=one&run=two&smooth=some"
    page.reload()
    page.wait_for_selector(".chip")
    assert len(seen.lines("accuracy")) == 4
    page.uncheck(box("one"))
    page.uncheck(box("two"))
    page.wait_for_selector("#blank")
    page.check(box("half"))
    page.wait_for_selector('#blank:has-text("not valid JSON")')
    assert seen.complaints == []


def test_hostile_names_stay_texts(browser: Any, url: str, tmp_path: Path) -> None:
    failure = {"algorithm": A, "seed": 0, "round": 15, "reason": HOSTILE}
    make_run(
        tmp_path / "runs" / HOSTILE,
        labels={A: HOSTILE, B: "B"},
        failures=[failure],
        name=HOSTILE,
        data=HOSTILE,
        partition=HOSTILE,
        command=HOSTILE,
        groups=[HOSTILE, "b", "c"],
        lists=True,
    )
    seen = Visit(browser, url, viewport={"width": 400, "height": 800})
    page = seen.page
    seen.plotted("accuracy")
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator(".run .name").inner_text() == HOSTILE
    assert page.locator(".warn").inner_text().endswith(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert seen.complaints == []
    assert all(one.startswith(url) for one in seen.asked)
