"""Measures the page on a large node in a real browser: its first paint, and when an event is seen.

The times are those that the browser takes itself, from the start of the navigation, and for events the time between the
answer to the kubelet and the frame in which the page shows the container, on the same clock.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.async_api import Page

from criproxy.model.machine.topology import Topology
from criproxy.simulate.hosts import GIB
from lab.bench.ways import cpu_ns_of
from lab.emulator.runtime import IMAGE
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


@dataclass(slots=True)
class Times:
    """What was measured, in milliseconds."""

    cpus: int
    containers: int
    first_paint_ms: list[float] = field(default_factory=list)
    """Until something is on the screen."""
    drawn_ms: list[float] = field(default_factory=list)
    """Until the CPUs and containers of the node are."""
    event_ms: list[float] = field(default_factory=list)
    draw_ms: float = 0.0
    """The longest time that the page has drawn without a pause, which is when it does not react."""
    sort_ms: list[float] = field(default_factory=list)
    """Until the containers are in another order on the screen."""
    open_cpu_percent: float = 0.0
    """CPU time of the daemon while a page is open and nothing happens."""

    def lines(self) -> list[str]:
        """What to print."""
        rows = {
            "first paint": self.first_paint_ms,
            "node drawn": self.drawn_ms,
            "event seen": self.event_ms,
            "sorted": self.sort_ms,
        }
        found = [f"{name:14}median {median(each):6.0f} ms, longest {max(each):6.0f} ms" for name, each in rows.items()]
        return [
            f"{self.cpus} CPUs, {self.containers} containers",
            *found,
            f"{'longest draw':14}{self.draw_ms:13.0f} ms",
            f"{'page open':14}{self.open_cpu_percent:13.2f} % of a CPU",
        ]


def measure(containers: int, loads: int, events: int, idle_s: float, topology: Topology | None = None) -> Times:
    """Measure on a node of 384 CPUs, unless another one is given."""
    return asyncio.run(measure_now(topology or large(), containers, (loads, events), idle_s))


async def measure_now(topology: Topology, containers: int, repeats: Sequence[int], idle_s: float) -> Times:
    """The same in a running event loop; *repeats*: of loads and events."""
    times, (loads, events) = Times(len(topology.online_cpus), containers), repeats
    with TemporaryDirectory(prefix="criproxy-page-") as name:
        async with stage(Path(name), topology) as node, browser() as started:
            await node.run(crowd(containers))
            await node.ask("events")  # as on a node that is not busy: all of their history is written
            for _ in range(loads):
                async with window(started, node.url) as shown:
                    found = await shown.page.evaluate(PAINTS)
                    times.first_paint_ms.append(found["first"])
                    times.drawn_ms.append(found["drawn"])
            async with window(started, node.url) as shown:
                for number in range(events):
                    times.event_ms.append(await _event_ms(node, shown.page, number))
                    times.sort_ms.append(await _sort_ms(shown.page, number))
                times.draw_ms = await shown.page.evaluate(LONGEST)
                times.open_cpu_percent = await _open_cpu_percent(node, idle_s)
    return times


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
