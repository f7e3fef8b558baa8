"""Each alert fires from what the real parts export in its situation; `promtool` evaluates all of them at once.

tests/daemon/test_problems.py has further situations: together they leave no alert out.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest
import yaml

from criproxy import __version__
from criproxy.agent.metrics import Sample
from criproxy.agent.metrics import registry as agent_registry
from criproxy.api.metrics.moment import Moment
from criproxy.api.metrics.proxy_metrics import Gauges, registry
from criproxy.api.views.status_check import find
from criproxy.cri.methods import KNOWN_METHODS
from criproxy.cri.runtime import RuntimeCallError
from criproxy.deviceplugin.daemon_client.asking import report
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.model.workload import ContainerState
from criproxy.node.bypass import FAILURES, BypassMode
from criproxy.node.sync.drift import Drift
from criproxy.process.heartbeat import Heartbeat
from criproxy.simulate.hosts import machine
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from tests.addresses import free_address
from tests.daemon.test_problems import TABLE
from tests.daemon.test_serve_configuration import GOOD
from tests.daemons import LIMIT_S, Serve
from tests.deploy.firing import ALERTS, Case, assert_fire, samples
from tests.deviceplugin.fake_nvml import FakeNvml, nvml_library
from tests.deviceplugin.node import GPU, offer
from tests.deviceplugin.node import Node as PluginNode
from tests.deviceplugin.program import Program, policy
from tests.node.configuration.tried_node import MOVES, STATIC, Node, static_node
from tests.node.devices import test_guard, test_incidents
from tests.node.reconcile.test_trouble import cut_create, fails
from tests.node.sync.test_adopt import beside
from tests.node.test_bypassed_calls import Placing
from tests.node.world import FAST, NO_LOOKS, Slow, World, owner, sharer, situation

__all__ = ["nvml_library"]

POLL_S = 0.05
LAG = "criproxy_loop_lag_seconds_sum"
Alerts = tuple[str, ...]
NO_EVENTS = frozenset({"GetContainerEvents"})


def scrape(world: World) -> str:
    """The metrics of the controller and data plane of *world*."""
    controller, proxy = world.controller, world.proxy
    gauges = Gauges(
        window_debt_bytes=lambda: proxy.window_debt,
        oldest_held_s=lambda: proxy.oldest_held_s,
        bypass=lambda: world.bypass.mode if isinstance(world, Placing) else BypassMode.OFF,
        dropped_log_lines=lambda: 0,
    )
    metrics = registry(
        [proxy.stats],
        Heartbeat(lambda: None, print),
        gauges,
        KNOWN_METHODS,
        lambda: Moment(controller, find(situation(controller)), time.time()),
    )
    return metrics.render("")[0].decode()


async def broken_policy(directory: Path) -> AsyncIterator[str]:
    """The policy fails again and again."""
    async with Placing(directory) as world:
        yield scrape(world)
        world.fragile.broken = True
        for number in range(FAILURES + 1):
            await world.run(owner(f"n{number}"))
        yield scrape(world)


async def second_container(directory: Path) -> AsyncIterator[str]:
    """A container was started on an owner's CPUs, past criproxy."""
    async with World(directory) as world:
        await world.run(owner("owner", 2))
        yield scrape(world)
        (foreign,) = await beside(world, sharer("foreign"))
        await world.poll(lambda: world.cpus(foreign) == "0,3")
        yield scrape(world)


async def refused_updates(directory: Path) -> AsyncIterator[str]:
    """The runtime refuses updates, so that a container stays where it is."""
    stuck = RuntimeOptions(missing=frozenset({"UpdateContainerResources"}))
    async with World(directory, stuck) as world:
        shared = await world.run(sharer("shared"))
        yield scrape(world)
        pod = owner("owner", 2)
        held = await world.kubelet.create(pod, await world.kubelet.run_sandbox(pod), pod.containers[0])
        await fails(world, shared, held)
        yield scrape(world)


async def held_start(directory: Path) -> AsyncIterator[str]:
    """The start of an owner waits for another container, whose update hangs."""
    async with World(directory, RuntimeOptions(latency_s=(slow := Slow()))) as world:
        await world.run(sharer("shared"))
        yield scrape(world)
        slow.hold("UpdateContainerResources")
        starting = asyncio.create_task(world.run(owner("owner", 2)))
        await world.poll(lambda: world.proxy.oldest_held_s > 0.5)
        yield scrape(world)
        slow.let_go("UpdateContainerResources")
        await starting


async def lost_create(directory: Path) -> AsyncIterator[str]:
    """A create ended without an answer, and the runtime does not tell what came of it."""
    slow = Slow(CreateContainer=60.0)
    async with World(directory, RuntimeOptions(latency_s=slow, missing=NO_EVENTS), NO_LOOKS) as world:
        yield scrape(world)
        await cut_create(world, slow)
        now = world.controller
        await world.until(lambda: ContainerState.UNKNOWN in {each.state for each in now.node.containers.values()})
        yield scrape(world)


async def no_room(directory: Path) -> AsyncIterator[str]:
    """A pod asks for more CPUs than there are."""
    async with World(directory) as world:
        yield scrape(world)
        with pytest.raises(RuntimeCallError, match="RESOURCE_EXHAUSTED"):
            await world.run(owner("large", 9))
        yield scrape(world)


def planted(*_: object) -> None:
    """A fault of ours."""
    raise ValueError("planted")


async def failing_watcher(directory: Path) -> AsyncIterator[str]:
    """A watcher meets a fault of ours again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drift, "_forget", planted)
        async with World(directory, settings=replace(FAST, drift_period_s=0.01)) as world:
            yield scrape(world)
            counts = world.controller.context.failures.counts
            await world.poll(lambda: counts["watcher"] > 0)
            yield scrape(world)


@asynccontextmanager
async def tried(directory: Path, former: str = MOVES) -> AsyncIterator[Node]:
    """A node on which a file is tried."""
    node = static_node(directory)
    node.file.write_text(former)
    async with node.world:
        await node.begun()
        await node.tries(STATIC)
        yield node


async def taken_back(directory: Path) -> AsyncIterator[str]:
    """Nobody kept a file that was tried."""
    async with tried(directory) as node:
        yield scrape(node.world)
        await node.ends()
        yield scrape(node.world)


async def endless_try(directory: Path) -> AsyncIterator[str]:
    """The machine has lost what the former file needs."""
    async with tried(directory, f'{STATIC.replace("0", "2")}availableResources: {{cpu: "cpuset:2-3"}}\n') as node:
        yield scrape(node.world)
        node._topology = node.world._topology = machine(nodes=1, cores=2, threads=1)
        await node.restart()
        node.time_is_over()
        await node.world.poll(lambda: "try-problem" in node.kinds())
        in_force = node.world.controller.context.in_force
        assert in_force.trial is not None
        in_force.trial = replace(in_force.trial, latest_s=time.monotonic() - 120.0)
        yield scrape(node.world)


async def untold(directory: Path) -> AsyncIterator[str]:
    """The kubelet's checkpoint cannot be read, and it serves no podresources."""
    rules = replace(test_guard.RULES, kubelet=KubeletFiles(socket="/none", checkpoint="/checkpoint"))
    (directory / "checkpoint").write_text("nonsense")
    async with test_guard.world(directory, rules=rules) as world:
        await world.poll(lambda: bool(world.controller.devices.stocks))
        yield scrape(world)
        for _ in range(4):
            await test_guard.create(world, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        yield scrape(world)


async def unhealthy(directory: Path) -> AsyncIterator[str]:
    """A container that was stopped because of its card is created again."""
    test_guard.host(directory)
    rules = DeviceRules(classes=(NVIDIA,))
    async with World(directory, settings=replace(FAST, devices=rules)) as world:
        await world.poll(lambda: world.controller.ready and bool(world.controller.devices.stocks))
        pod = test_incidents.gpu("one", "GPU-a")
        sandbox_id, _ = await world.kubelet.run_pod(pod)
        await test_incidents.report(world, "stop")
        await world.poll(lambda: world.counters.device_stops["nvidia"] == 1)
        yield scrape(world)
        with pytest.raises(RuntimeCallError, match="is refused"):
            await world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)
        yield scrape(world)


Situation = Callable[[Path], AsyncIterator[str]]
REPEATS, AGES = (
    {"repeats": True},
    dict.fromkeys(("criproxy_oldest_held_call_seconds", "criproxy_misplaced_age_seconds"), 60.0),
)
SITUATIONS: dict[Situation, tuple[Alerts, dict[str, object]]] = {
    broken_policy: (("CriproxyBypassAutomatic", "CriproxyFailing"), {}),
    second_container: (("CriproxyConflict",), {}),
    refused_updates: (("CriproxyContainerMisplaced", "CriproxyUpdatesFail"), {**REPEATS, "ages": AGES}),
    held_start: (("CriproxyCallHangs", "CriproxyContainerMisplaced"), {"ages": AGES}),
    lost_create: (("CriproxyOutcomesUnknown",), {}),
    no_room: (("CriproxyNoRoom",), {}),
    failing_watcher: (("CriproxyWatcherFailed",), {**REPEATS}),
    taken_back: (("CriproxyTryTakenBack",), {}),
    endless_try: (("CriproxyTryCannotEnd",), {}),
    untold: (("CriproxyDeviceEvidenceFails", "CriproxyDevicesUntold"), {}),
    unhealthy: (("CriproxyContainersWaitForCard",), {}),
}
"""What is scraped before and in a situation of a controller, and the alerts that fire if it lasts."""
OF_VGPUS = {
    "CriproxyUsageWatcherSilent": ("criproxy_usage_watcher_up", 1, 0),
    "CriproxyUsageUnknown": ('criproxy_device_plugin_usage_problem{class="nvidia"}', 0, 1),
    "CriproxyContainersOverQuota": ('criproxy_device_over_quota{device_class="nvidia",quantity="memory"}', 0, 2),
    "CriproxyVgpusExhausted": ('criproxy_vgpu_free{device_class="nvidia",profile="gpu-8g"}', 1, 0),
    "CriproxyPodFilesNotWritten": ("criproxy_pod_file_failures_total", 0, 6),
}
"""Alert → a series, and its values when all is well and when it is not."""


async def of_controllers(directory: Path) -> AsyncIterator[Case]:
    """The cases of a controller and data plane in this process."""
    for number, (happens, (alerts, more)) in enumerate(SITUATIONS.items()):
        place = directory / str(number)
        place.mkdir()
        well, seen = [text async for text in happens(place)]
        yield Case(happens.__name__, alerts, well, seen, only=False, **more)  # type: ignore[arg-type]


class Scraper:
    """Asks a process for its metrics as Prometheus does."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def scrape(self) -> str:
        """The metrics, and whether it answered."""
        try:
            async with self._session.get("/metrics") as answer:
                return f'{await answer.text()}up{{job="criproxy"}} 1\n'
        except aiohttp.ClientError:
            return 'up{job="criproxy"} 0\n'

    async def until(self, name: str, value: float, **labels: str) -> str:
        """The metrics as soon as one has this value, or a larger one."""

        def reached(sample: tuple[str, dict[str, str], float]) -> bool:
            return sample[0] == name and labels.items() <= sample[1].items() and sample[2] >= value

        async with asyncio.timeout(LIMIT_S):
            while not any(map(reached, samples(text := await self.scrape()))):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(POLL_S)
        return text


async def of_a_daemon(directory: Path) -> AsyncIterator[Case]:
    """The cases of a daemon that stands still for a moment, whose device plugin dies as it begins, and that ends."""
    http = free_address()
    async with (
        EmbeddedRuntime(directory / "runtime.sock", RuntimeOptions(host_root=directory)),
        Serve(directory, "--http", http, policy=GOOD, cpus="0-3") as serve,
        aiohttp.ClientSession(f"http://{http}") as session,
    ):
        scraper = Scraper(session)
        await report(str(serve.control), "device-inventory", {"version": __version__})
        well = await scraper.until("criproxy_loop_lag_seconds_count", 1)
        serve.signal(signal.SIGSTOP)
        await asyncio.sleep(2.0)
        serve.signal(signal.SIGCONT)
        lag_s = next(value for name, _, value in samples(well) if name == LAG)
        late = await scraper.until(LAG, lag_s + 1.0)
        yield Case("late", ("CriproxyLoopLate",), well, late, only=False, repeats=True)

        for running in (False, True):
            await report(str(serve.control), "device-plugin", {"running": running})
        yield Case("left", ("CriproxyDevicePluginDown",), well, await scraper.scrape(), only=False)

        await serve.stop()
        yield Case("ended", ("CriproxyDown",), well, await scraper.scrape(), only=False)


async def of_a_device_plugin(folder: Path, nvml: FakeNvml) -> AsyncIterator[Case]:
    """The cases of a device plugin whose card, NVML, file, kubelet and rival do what they should not."""
    prefix = "criproxy_device_plugin"
    connector = aiohttp.UnixConnector(str(folder / "http.sock"))
    async with (
        Program(folder, f"--http=unix://{folder}/http.sock", driver=nvml) as program,
        aiohttp.ClientSession("http://plugin", connector=connector) as session,
    ):
        await program.begin("{advertise: [nvidia], health: {holdDown: 1h}}")
        await program.kubelet.until_capacity(GPU, 2)
        await nvml.until_watched(2)
        scraper = Scraper(session)
        well = await scraper.until(f"{prefix}_registered", 1)

        async def case(alerts: Alerts, name: str, **labels: str) -> Case:
            seen = await scraper.until(f"{prefix}_{name}", 1, **labels)
            return Case(name, alerts, well, seen, only=False)

        nvml.xid(1, 79)
        yield await case(("CriproxyCardUnhealthy",), "cards", health="unhealthy")
        program.policy.write_text("policy: [\n")
        yield await case(("CriproxyDevicePluginConfigNotInForce",), "config_problem")
        program.policy.write_text(policy("{advertise: [nvidia], health: {holdDown: 2h}}"))
        nvml.say("fail 18")
        yield await case(("CriproxyCardsMissing",), "inventory_problem")
        os.kill(events_of(program), signal.SIGKILL)
        yield await case(("CriproxyCardEventsUnseen",), "events_problem")

        rival = PluginNode(program.kubelet.root, way="plugins-registry")
        rival.start_plugins()
        rival.plugins.publish(offer("a"))
        yield await case(("CriproxyDevicePluginReplaced", "CriproxyDevicePluginNotRegistered"), "replaced_total")
        await rival.stop_plugins()


def of_agents() -> Iterator[Case]:
    """Yield the cases of agents that are gone, cannot do their work, and whose NodePolicy is not in force."""

    def rendered(phase: str = "Applied", troubles: int = 0) -> str:
        sample = Sample(connected=True, silent_s=1.0, phase=phase, troubles=troubles)
        text, _ = agent_registry(lambda: sample).render("text/plain")
        return text.decode()

    up = 'up{job="criproxy-agent"}'
    yield Case("agent gone", ("CriproxyAgentDown",), f"{up} 1\n", f"{up} 0\n")
    yield Case("agent in trouble", ("CriproxyAgentTroubled",), rendered(), rendered(troubles=1))
    for phase in ("RolledBack", "Refused"):
        yield Case(phase, ("CriproxyNodePolicyNotInForce",), rendered(), rendered(phase=phase))


async def test_alerts_of_agents(tmp_path: Path) -> None:
    """They fire by the metrics that the agent exports."""
    assert_fire(tmp_path, [*of_agents()])


def events_of(program: Program) -> int:
    """The process that waits for NVML's events."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            stat = path.with_name("stat").read_text()
            parent = stat.rpartition(")")[2].split()[1]  # after the state, which is any on a busy machine
            if b"nvml_events" in path.read_bytes() and int(parent) == program.process.pid:
                return int(path.parent.name)
    raise AssertionError("nobody waits for NVML's events")


async def test_each_alert_fires_in_its_situation(tmp_path: Path, nvml_library: Path, shared_dir: Path) -> None:
    """Within two hours, and not in the hour before; none of the file is left out."""
    cards = (shared_dir / "tools/fake-nvml/p100.txt").read_text()
    (tmp_path / "daemon").mkdir()
    with TemporaryDirectory(prefix="p") as name:
        nvml = FakeNvml(nvml_library, tmp_path / "cards.txt", cards)
        cases = [case async for case in of_a_device_plugin(Path(name), nvml)]
    cases += [case async for case in of_a_daemon(tmp_path / "daemon")]
    cases += [case async for case in of_controllers(tmp_path)]
    cases += of_agents()
    for alert, (series, well, seen) in OF_VGPUS.items():
        cases.append(Case(alert, (alert,), f"{series} {well}\n", f"{series} {seen}\n", repeats=True))

    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    fired = {alert for case in cases for alert in case.alerts} | {
        a for row in TABLE.values() for a in row.alerts.split()
    }
    assert {rule["alert"] for group in groups for rule in group["rules"]} == fired
    assert_fire(tmp_path, cases)
