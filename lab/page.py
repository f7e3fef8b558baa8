"""Measures the page on a large node in a real browser: ``python -m lab.page``; exits with status 1 above a limit.

The times are those that the browser takes itself, from the start of the navigation, and for events the time between the
answer to the kubelet and the frame in which the page shows the container, on the same clock.
"""

import argparse
import asyncio
import sys
import time
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


async def measure(topology: Topology, containers: int, loads: int, events: int, idle_s: float) -> Times:
    """Measure on a node of this machine."""
    times = Times(len(topology.online_cpus), containers)
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


CONTAINERS = 500
FIRST_PAINT_MS, EVENT_MS = 1000.0, 1000.0


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description="How fast the page is.")
    parser.add_argument("--containers", type=int, default=CONTAINERS)
    parser.add_argument("--loads", type=int, default=10, help="how often the page is opened")
    parser.add_argument("--events", type=int, default=20, help="containers that are created while it is open")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which nothing happens")
    given = parser.parse_args()
    found = asyncio.run(measure(large(), given.containers, given.loads, given.events, given.idle))
    print("\n".join(found.lines()))
    print(f"limits: node drawn {FIRST_PAINT_MS:.0f} ms, event seen {EVENT_MS:.0f} ms")
    return int(max(found.drawn_ms) > FIRST_PAINT_MS or max(found.event_ms) > EVENT_MS)


if __name__ == "__main__":
    sys.exit(main())
