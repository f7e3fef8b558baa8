"""Measures the page on a large node in a real browser: ``python -m lab.page``; exits with status 1 above a limit.

The times are those that the browser takes itself, from the start of the navigation, and for events the time between the
answer to the kubelet and the frame in which the page shows the container, on the same clock.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.async_api import Page

from criproxy.model.machine.topology import Topology
from criproxy.simulate.hosts import GIB
from lab.bench.ways import cpu_ns_of
from lab.emulator.runtime import IMAGE
from lab.figures import Figure, judge
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.page.browser import browser, window
from tests.page.stage import Stage, crowd, large, stage

SEEN = """title => new Promise(seen => {
    const at = () => {
        const there = [...document.querySelectorAll('#events .said')].some(each => each.textContent.includes(title));
        if (there) requestAnimationFrame(() => seen(Date.now())); else setTimeout(at, 5);
    };
    at();
})"""
"""Resolves with the time at which an event of a container is on the screen."""
PAINTS = """() => {
    const paint = performance.getEntriesByType('paint').find(each => each.name === 'first-contentful-paint');
    return {first: paint.startTime, drawn: performance.getEntriesByName('criproxy-drawn')[0].startTime};
}"""
LONGEST = "Number(document.documentElement.dataset.longestDrawMs)"


CONTAINERS = 500
FIRST_PAINT_MS, EVENT_MS = 1000.0, 1000.0
"""Limits of the longest."""


async def measure(topology: Topology, containers: int, loads: int, events: int, idle_s: float) -> list[Figure]:
    """Measure on a node of this machine."""
    paints, event_ms, sort_ms = list[Mapping[str, float]](), list[float](), list[float]()
    with TemporaryDirectory(prefix="criproxy-page-") as name:
        async with stage(Path(name), topology) as node, browser() as started:
            await node.run(crowd(containers))
            await node.ask("events")  # as on a node that is not busy: all of their history is written
            for _ in range(loads):
                async with window(started, node.url) as shown:
                    paints.append(await shown.page.evaluate(PAINTS))
            async with window(started, node.url) as shown:
                for number in range(events):
                    event_ms.append(await _event_ms(node, shown.page, number))
                    sort_ms.append(await _sort_ms(shown.page, number))
                draw_ms: float = await shown.page.evaluate(LONGEST)
                open_cpu_percent = await _open_cpu_percent(node, idle_s)
    way = f"{len(topology.online_cpus)} CPUs, {containers} containers"
    return [
        *_times("something is on the screen", way, [each["first"] for each in paints]),
        *_times("CPUs and containers are", way, [each["drawn"] for each in paints], FIRST_PAINT_MS),
        *_times("an event is", way, event_ms, EVENT_MS),
        *_times("the containers are in another order", way, sort_ms),
        # While it draws without a pause, the page does not react.
        Figure("the page has drawn without a pause", way, "longest", draw_ms, "ms"),
        Figure("a page is open and nothing happens", way, "CPU of the daemon", open_cpu_percent, "%"),
    ]


def _times(what: str, way: str, times_ms: list[float], limit: float | None = None) -> list[Figure]:
    longest = Figure(what, way, "longest", max(times_ms), "ms", limit)
    return [Figure(what, way, "median", median(times_ms), "ms"), longest]


async def _event_ms(node: Stage, page: Page, number: int) -> float:
    name = f"measured-{number}"
    spec = ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=GIB)
    seen = asyncio.ensure_future(page.evaluate(SEEN, f"/{name}/"))
    await node.kubelet.run_pod(PodSpec(name, (spec,)))
    happened_s = time.time()
    shown_ms: float = await seen
    return max(0.0, shown_ms - happened_s * 1000)


async def _sort_ms(page: Page, number: int) -> float:
    key = ("cpus", "age", "name")[number % 3]
    took: float = await page.evaluate(
        """key => new Promise(done => {
            const begun = performance.now();
            document.querySelector(`th[data-key="${key}"] button`).click();
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
        })""",
        key,
    )
    return took


async def _open_cpu_percent(node: Stage, idle_s: float) -> float:
    process = node.serve.process
    assert process is not None
    before_ns = cpu_ns_of(process.pid)
    await asyncio.sleep(idle_s)  # what is measured is a time in which nothing happens
    return (cpu_ns_of(process.pid) - before_ns) / idle_s / 1e7


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description="How fast the page is.")
    parser.add_argument("--containers", type=int, default=CONTAINERS)
    parser.add_argument("--loads", type=int, default=10, help="how often the page is opened")
    parser.add_argument("--events", type=int, default=20, help="containers that are created while it is open")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which nothing happens")
    given = parser.parse_args()
    found = asyncio.run(measure(large(), given.containers, given.loads, given.events, given.idle))
    return judge("How long it takes until …", found)


if __name__ == "__main__":
    sys.exit(main())
