"""A real browser for tests of the page: Debian's chromium without a screen, driven by Playwright.

Playwright brings no browser along and downloads none here. What a page requests, logs and throws is written down.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

PROGRAMS = ("chromium-headless-shell", "chromium")
LIMIT_MS = 60_000
"""Only what never comes takes so long."""
expect.set_options(timeout=LIMIT_MS)
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
SIZES = {"desk": (1440, 900), "phone": (390, 844), "zoomed": (720, 450), "narrow": (320, 640), "picture": (1280, 900)}
"""Width and height of windows; `zoomed` is the desk at 200 %."""


def program() -> str:
    """The browser; skip the test where there is none."""
    for name in PROGRAMS:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no {PROGRAMS[0]}: apt-get install {PROGRAMS[0]}")


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser that resolves no names."""
    path = program()
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(
            executable_path=path, args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        )
        try:
            yield found
        finally:
            await found.close()


@dataclass
class Window:
    """One page, and what it did."""

    page: Page
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Of the console, and exceptions."""

    def _watch(self) -> None:
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@asynccontextmanager
async def window(
    of: Browser, url: str, size: str = "desk", theme: Theme = "light", *, may_lose: bool = False
) -> AsyncIterator[Window]:
    """The page at *url*, as soon as it shows the node; in the end the console is silent, but for lost connections."""
    width, height = SIZES[size]
    context: BrowserContext = await of.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    context.set_default_timeout(LIMIT_MS)
    try:
        found = Window(await context.new_page())
        found._watch()
        await found.page.goto(url)
        await found.page.wait_for_selector("html[data-drawn]")
        yield found
        assert [text for text in found.complaints if not (may_lose and "ERR_" in text)] == []
    finally:
        await context.close()
