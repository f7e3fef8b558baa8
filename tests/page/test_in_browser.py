"""The page of ``--http`` in a real browser: what it draws is what `criproxy status` prints, and it stays so."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Browser, expect

from criproxy.model.cpuset import parse_cpuset
from criproxy.simulate.hosts import GIB
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.page.browser import Theme, window
from tests.page.scene import trouble
from tests.page.stage import SMALL, Stage, crowd, stage, vgpu_pods

PICTURES = Path(__file__).resolve().parents[2] / "build/page"
DRAWN = """() => ({
    cpus: Object.fromEntries([...document.querySelectorAll('.machine .cpu')].map(each =>
        [each.dataset.cpu, [each.dataset.kind, each.dataset.owners, each.classList.contains('moving')]])),
    rows: [...document.querySelectorAll('#table tbody tr')].map(each => each.dataset.life),
})"""


@dataclass(slots=True)
class Node:
    """A node with some containers, and a browser."""

    stage: Stage
    browser: Browser

    async def status(self) -> dict[str, Any]:
        """What the command prints."""
        _, found = await self.stage.serve.json("status")
        return dict(found)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory, opened: Browser) -> AsyncIterator[Node]:
    """Containers that own CPUs, share them, and have parts of cards."""
    async with stage(tmp_path_factory.mktemp("n")) as there:
        await there.run([*crowd(14), *vgpu_pods()])
        yield Node(there, opened)


def expected(status: dict[str, Any]) -> dict[str, Any]:
    """What must be drawn of an answer: for each CPU its kind and owners, and the containers."""
    sets = {name: parse_cpuset(text) for name, text in status["cpus"].items()}
    alive = [row for row in status["containers"] if row["state"] != "exited"]
    cpus = {}
    for cpu in sorted(SMALL.online_cpus):
        owners = [life(row) for row in alive if cpu in parse_cpuset(row["exclusive_cpus"])]
        late = any(
            cpu in parse_cpuset(row["cpus"]) ^ parse_cpuset(row["applied_cpus"]) for row in alive if row["placed"]
        )
        kind = "reserved" if cpu in sets["reserved"] else "free" if cpu in sets["free"] else "shared"
        cpus[str(cpu)] = ["exclusive" if owners else kind, " ".join(owners), late]
    return {"cpus": cpus, "rows": sorted(map(life, alive))}


def life(row: dict[str, Any]) -> str:
    """The name of a container instance."""
    return str(row["reservation"] or row["id"])


async def settled(node: Node) -> dict[str, Any]:
    """The status, as soon as every container is where it belongs."""
    while True:
        status = await node.status()
        if not status["totals"]["not_in_place"]:
            return status


async def test_what_is_drawn_is_what_status_prints(node: Node) -> None:
    """CPUs with kinds and owners, containers, totals; nothing is requested elsewhere, and the console is silent."""
    status = await settled(node)
    wanted = expected(status)
    async with window(node.browser, node.stage.url) as shown:
        await shown.page.wait_for_function(
            f"wanted => JSON.stringify(({DRAWN})().cpus) === wanted", arg=compact(wanted["cpus"])
        )
        drawn = await shown.page.evaluate(DRAWN)
        facts = await shown.page.inner_text("#facts")
        cards = await shown.page.inner_text("#cards")

    assert (drawn["cpus"], sorted(drawn["rows"])) == (wanted["cpus"], wanted["rows"])
    counts = status["cpu_counts"]
    assert f"{counts['exclusive']} of {counts['capacity']}" in facts
    assert all(f"default/model-{name}" in cards for name in ("a0", "a1", "b0", "b1"))
    assert {url for url in shown.requested if not url.startswith(node.stage.url)} == set()


def compact(value: Any) -> str:  # noqa: ANN401 (JSON)
    """As JavaScript writes it."""
    return json.dumps(value, separators=(",", ":"))


async def test_changes_arrive_without_a_reload(node: Node) -> None:
    """A new container, its CPUs and its event are shown, and are gone again when it has ended."""
    new = PodSpec("late", (ContainerSpec("main", IMAGE, cpu_limit_milli=2000, memory_limit_bytes=GIB),), "shop")
    async with window(node.browser, node.stage.url) as shown:
        page = shown.page
        sandbox, ids = await node.stage.kubelet.run_pod(new)
        row = page.locator("#table tbody tr", has_text="late/main")
        await expect(row).to_contain_text("2")
        await expect(page.locator("#events")).to_contain_text("shop/late/main")
        owned = parse_cpuset(
            next(each for each in (await node.status())["containers"] if each["id"] == ids["main"])["exclusive_cpus"]
        )
        for cpu in owned:
            await expect(page.locator(f".cpu[data-cpu='{cpu}']")).to_have_attribute("data-kind", "exclusive")

        await node.stage.kubelet.remove_pod(sandbox)
        await expect(row).to_have_count(0)


async def test_a_story_the_keyboard_and_a_filter(node: Node) -> None:
    """Enter on an exclusive CPU shows who owns it and why, Escape returns to it, and words filter the containers."""
    status = await settled(node)
    owner = next(row for row in status["containers"] if row["exclusive_cpus"])
    cpu, title = min(parse_cpuset(owner["exclusive_cpus"])), f"{owner['namespace']}/{owner['pod']}/{owner['container']}"
    async with window(node.browser, node.stage.url) as shown:
        page = shown.page
        await page.locator(f".cpu[data-cpu='{cpu}']").focus()
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("Enter")
        await expect(page.locator("#story-title")).to_have_text(title)
        await expect(page.locator("#story-body")).to_contain_text("Why it is there")
        await page.keyboard.press("Escape")
        await expect(page.locator("#story")).to_be_hidden()
        focused = await page.evaluate("document.activeElement.dataset.cpu")
        await page.keyboard.press("/")
        await page.keyboard.type(f"{owner['namespace']}/{owner['pod']}/ {owner['state']}")
        await expect(page.locator("#table tbody tr")).to_have_count(1)

    assert focused == str(cpu)


@pytest.mark.parametrize(("size", "theme"), [("desk", "light"), ("narrow", "dark")])
async def test_everybody_can_use_it(node: Node, size: str, theme: Theme) -> None:
    """axe-core finds nothing serious from a desk to 320 pixels, without and with a story; pictures: build/page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    await trouble(node.stage)
    async with window(node.browser, node.stage.url, size, theme) as shown:
        page = shown.page
        await page.screenshot(path=PICTURES / f"{size}-{theme}.png", full_page=True)
        found = await serious(page)
        await page.locator("#table tbody a").first.click()
        await expect(page.locator("#story-body")).to_contain_text("Why it is there")
        await page.screenshot(path=PICTURES / f"{size}-{theme}-story.png")
        found += await serious(page)
        wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    assert (found, wide) == ([], 0)


async def serious(page: Any) -> list[str]:  # noqa: ANN401 (a page)
    """What axe-core complains about, with the elements."""
    await page.evaluate(AXE_SCRIPT)
    result = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]


CLASSES = """classes:
  batch:
    {for: {namespaces: [default]}, cpu: {burst: idle}, memory: {high: 1Mi}, scheduling: {policy: batch}}
"""


async def test_the_story_of_a_container_with_classes(tmp_path: Path, opened: Browser) -> None:
    """It has its class, the files with the applied value, what the service sets, and how it was throttled."""
    spec = ContainerSpec("main", IMAGE, cpu_request_milli=100, cpu_limit_milli=200)
    async with stage(tmp_path, more=CLASSES) as there:
        (key,) = await there.run([PodSpec("web", (spec,))])
        async with window(opened, f"{there.url}#container={key}") as shown:
            body = shown.page.locator("#story-body")
            await expect(body).to_contain_text("What its classes set")
            await expect(body).to_contain_text("class batch for memory")
            await expect(body).to_contain_text("memory.high: 1048576")
            await expect(body).to_contain_text("scheduling: by criproxy controls (")
            await expect(body).to_contain_text("CPU limit: lifted; throttled 0 s in 0 s in force, an unknown time in")
            await expect(body).to_contain_text("CPU limit of its pod: unknown")
