"""A browser without a window, for tests of pages."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

HASTE = "{ const wait = setTimeout; window.setTimeout = (call, ms) => wait(call, ms / 20); }"
"""a page that looks for news every other second does so ten times a second"""

PATIENCE = 300
"""seconds to wait for what must come true; never reached but by a failure"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"needs a browser, none of {', '.join(NAMES)} is installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"] if root else []
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is open in a browser, and all that it asked for and complained about."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("dialog " + dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.add_init_script(HASTE)
        self.page.goto(address)

    def plotted(self, metric: str) -> Any:
        """The lines of a plot, once they are drawn."""
        plot = f'.plot[data-metric="{metric}"]'
        self.page.locator(plot).first.scroll_into_view_if_needed()
        self.until(f"document.querySelector('{plot}').stale === false")
        return self.page.evaluate(
            "(plot) => document.querySelector(plot).data.map("
            "({x, y, z, fill, opacity}) => ({x, y, z, fill: fill ?? '', opacity: opacity ?? 1}))",
            plot,
        )

    def lines(self, metric: str) -> Any:
        """The lines to read: neither bands nor what lies faintly behind."""
        return [one for one in self.plotted(metric) if not one["fill"] and one["opacity"] == 1]

    def until(self, expression: str) -> None:
        """Wait for something to come true; the page's own policy lets no text be run in it."""
        end = time.monotonic() + PATIENCE
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            self.page.wait_for_timeout(50)

    def press(self, key: str, value: str) -> None:
        """Choose an option above the plots."""
        self.page.click(f'.options button[data-key="{key}"][data-value="{value}"]')
