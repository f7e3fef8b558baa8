"""How the page looks on windows of all sizes, as far as that can be measured."""

import asyncio
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from tests.page.browser import SIZES, window
from tests.page.scene import trouble
from tests.page.stage import Stage, large, stage, vgpu_pods

LIMIT_S = 120.0
LEAST_WIDTH_PX, LEAST_HEIGHT_PX = 24, 20
BOXES = """names => Object.fromEntries(names.map(name => [name, [...document.querySelectorAll(name)].map(each => {
    const {left, top, right, bottom} = each.getBoundingClientRect();
    return [left, top + scrollY, right, bottom + scrollY].map(Math.round);
})]))"""
CUT = """() => [...document.querySelectorAll('#facts .value, #facts .detail, #legend li, .cpu, .sort')]
    .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"""
"""Texts that are not shown to their end, although the rest is nowhere else."""


async def test_every_cpu_can_be_seen_and_hit(tmp_path: Path, opened: Browser) -> None:
    """CPUs lie beside each other, wide enough for a finger, inside the window; no word is cut off."""
    async with asyncio.timeout(LIMIT_S), stage(tmp_path, large()) as there:
        for size, (width, _) in SIZES.items():
            async with window(opened, there.url, size) as shown:
                boxes = await shown.page.evaluate(BOXES, [".machine .cpu", ".machine .cache", "main > *"])
                cut = await shown.page.evaluate(CUT)
            cpus = boxes[".machine .cpu"]
            assert (size, cut, len(cpus)) == (size, [], len(large().online_cpus))
            assert min(right - left for left, _, right, _ in cpus) >= LEAST_WIDTH_PX
            assert min(bottom - top for _, top, _, bottom in cpus) >= LEAST_HEIGHT_PX
            assert max(right for _, _, right, _ in cpus) <= width
            for found in boxes.values():
                assert (size, *overlapping(found)) == (size,)


def overlapping(boxes: list[Any]) -> list[tuple[Any, Any]]:
    """Pairs of boxes (left, top, right, bottom) of which one covers a part of the other."""
    ordered = sorted(boxes, key=lambda box: box[1])
    return [
        (one, other)
        for index, one in enumerate(ordered)
        for other in ordered[index + 1 :]
        if other[1] < one[3] and one[1] < other[3] and other[0] < one[2] and one[0] < other[2]
    ]


async def test_a_name_is_said_once(there: Stage, opened: Browser) -> None:
    """What stands behind the link to a container does not begin with its name again."""
    await there.run(vgpu_pods())
    await trouble(there)
    async with window(opened, there.url) as shown:
        await expect(shown.page.locator("#health")).to_contain_text("studio/render-0/main is refused: it asks for")
        await expect(shown.page.locator("#events li").first).to_contain_text("studio/render-0/main it asks for")
