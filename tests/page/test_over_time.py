"""The page while things happen around it: changes below the keyboard, restarts, bypass, release, hostile names."""

import re

import aiohttp
from playwright.async_api import Browser, Page, expect

from criproxy.api.page.stream import DISPLACED, MOST_STREAMS
from criproxy.simulate.hosts import GIB
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.page.browser import window
from tests.page.stage import SHOPS, Stage, crowd

SPEC = ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=GIB)
FOCUSED = "document.activeElement.getAttribute('href')"
NEWER = "import criproxy; criproxy.__version__ = '99.0'; from criproxy.cli import main; main()"
"""Runs as `criproxy` of another version."""
HOSTILE = (
    "x" * 10_000,
    "<script>document.title='owned'</script><svg onload=alert(1)><img src=x onerror=alert(1)>",
    "\u202eevil\u2066\u0000\ud7ff\ufeff\u2028\x1b[31m",
    "z" + "\u0301\u0489\u20dd" * 300,
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 123",
    "__proto__",
    "&lt;b&gt; %00 ../../../etc/passwd #container=x",
)
"""Long, markup, invisible, piled up, from right to left, and words that mean something elsewhere."""


async def test_a_node_without_containers(there: Stage, opened: Browser) -> None:
    """It says so where the containers would be; so does a filter that nothing matches."""
    async with window(opened, there.url) as shown:
        await expect(shown.page.locator("#no-containers")).to_have_text("There are no containers on this node.")
        await there.run([PodSpec("only", (SPEC,), "shop")])
        await expect(shown.page.locator("#no-containers")).to_be_hidden()
        await shown.page.fill("#search", "nothing like it")
        await expect(shown.page.locator("#no-containers")).to_contain_text("No container matches")


async def test_who_moves_with_the_keyboard_is_not_thrown_back(there: Stage, opened: Browser) -> None:
    """A link that has the focus keeps it when rows, events and stories are drawn anew around it."""
    await there.run(crowd(4))
    async with window(opened, there.url) as shown:
        page = shown.page
        for number, place in enumerate(("#table tbody", "#events")):
            link = page.locator(f"{place} a").first
            await link.focus()
            before = await page.evaluate(FOCUSED)
            await there.run([PodSpec(f"a-{number}", (SPEC,), "aaa")])  # above all others
            await expect(page.locator("#table tbody")).to_contain_text(f"a-{number}/main")
            await expect(page.locator("#events")).to_contain_text(f"aaa/a-{number}/main")
            assert (place, await page.evaluate(FOCUSED)) == (place, before)

        await page.locator("#table tbody a", has_text="web-0/main").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#story-body")).to_contain_text("Why it is there")
        before = await page.evaluate("location.hash")
        await there.run([PodSpec("a-9", (SPEC,), "aaa")])
        await expect(page.locator("#table tbody")).to_contain_text("a-9/main")
        await page.keyboard.press("Escape")
        assert await page.evaluate(FOCUSED) == before


async def test_a_daemon_that_restarts(there: Stage, opened: Browser) -> None:
    """The page says that it is not connected and of when it is, and goes on by itself."""
    await there.run(crowd(4))
    async with window(opened, there.url, may_lose=True) as shown:
        page = shown.page
        await there.serve.stop()
        live = page.locator("#live-text")
        await expect(live).to_contain_text("Not connected")
        await expect(live).to_contain_text("last update at")
        await page.evaluate("scrollTo(0, 10000)")
        await expect(page.locator("#live")).to_be_in_viewport()
        there.serve.forget()
        await there.serve.spawn()
        await expect(live).to_have_text("Live")
        await expect(page.locator("#table tbody tr")).to_have_count(4)
        await there.run([PodSpec("later", (SPEC,), "shop")])
        await expect(page.locator("#table tbody")).to_contain_text("later/main")


async def test_a_page_that_is_displaced_comes_back_when_somebody_looks(there: Stage, opened: Browser) -> None:
    """It takes no place from the newer ones by itself."""
    async with window(opened, there.url) as shown, aiohttp.ClientSession() as session:
        live = shown.page.locator("#live-text")
        await expect(live).to_have_text("Live")
        newer = [await session.get(f"{there.url}api/stream") for _ in range(MOST_STREAMS)]
        await expect(live).to_contain_text(DISPLACED)
        await there.run(crowd(4))
        await newer[0].content.readuntil(f"{SHOPS[0]}-0".encode())
        await expect(live).to_contain_text(DISPLACED)
        await shown.page.keyboard.press("Tab")
        await expect(live).to_have_text("Live")
        await expect(shown.page.locator("#table tbody tr")).to_have_count(4)
        assert (await newer[0].content.read()).rpartition(b"event: ")[2].startswith(b"displaced")
        for each in newer:
            each.close()


async def test_another_version_loads_its_own_page(there: Stage, opened: Browser) -> None:
    """After an upgrade the page is loaded anew: what it is told may have changed with the daemon."""
    async with window(opened, there.url, may_lose=True) as shown:
        page = shown.page
        await page.evaluate("document.documentElement.dataset.old = 'yes'")
        await there.serve.stop()
        there.serve.forget()
        there.serve._arguments[:2] = ["-c", NEWER]
        await there.serve.spawn()
        await expect(page.locator("html[data-drawn]:not([data-old])")).to_have_count(1)
        await expect(page.locator("#version")).to_contain_text("criproxy 99.0")


async def test_what_an_operator_has_switched(there: Stage, opened: Browser) -> None:
    """While the node is out of criproxy's hands, the page says so without a reload."""
    await there.run(crowd(6))
    async with window(opened, there.url) as shown:
        await there.ask("bypass", state="on")
        await expect(shown.page.locator("#health")).to_contain_text("bypass")
        await there.ask("bypass", state="off")
        await there.ask("release")
        await expect(shown.page.locator("#health")).to_contain_text("released")


async def test_a_clock_that_is_wrong(there: Stage, opened: Browser) -> None:
    """What has happened is counted on the clock of the node, whatever that of the browser says."""
    await there.run(crowd(2))
    context = await opened.new_context()
    try:
        page = await context.new_page()
        await page.clock.set_system_time("2020-02-02T02:02:02Z")
        await page.goto(there.url)
        await page.wait_for_selector("html[data-drawn]")
        facts, version = await page.inner_text("#facts"), await page.inner_text("#version")
        ages = await page.locator("#table tbody .age").all_inner_texts()
    finally:
        await context.close()

    assert "last call" in facts
    assert re.findall(r"\d+ [dh]\b", " ".join([facts, version, *ages])) == []


async def test_hostile_names(there: Stage, opened: Browser) -> None:
    """They are text, whatever is in them, and move nothing out of its place; their stories open."""
    await there.run([PodSpec(name, (SPEC,), "evil") for name in HOSTILE])
    async with window(opened, there.url, "narrow") as shown:
        page = shown.page
        rows = page.locator("#table tbody tr")
        await expect(rows).to_have_count(len(HOSTILE))
        assert await overflow(page) == 0
        for index in range(len(HOSTILE)):
            await rows.nth(index).locator("a").click()
            await page.wait_for_selector("#story-body h3")
            assert (index, await overflow(page)) == (index, 0)
            await page.keyboard.press("Escape")
            await page.evaluate("document.getElementById('story-body').replaceChildren()")
        assert "owned" not in await page.title()
        assert await page.evaluate("document.querySelectorAll('script, svg').length") == 2  # ours

        await expect(rows.filter(has_text="<img src=x onerror=alert(1)>")).to_have_count(1)
        await expect(rows.filter(has_text="\\u{202e}evil")).to_have_count(1)
        images = await page.evaluate("[...document.images].map(each => each.getAttribute('src'))")

    assert set(images) == {"page/icon.svg"}


async def overflow(page: Page) -> int:
    """By how many pixels the page, or the story in it, is wider than its window."""
    found: int = await page.evaluate(
        """() => Math.max(...[document.documentElement, document.getElementById('story')]
            .map(each => each.scrollWidth - each.clientWidth))"""
    )
    return found
