"""A situation looks the same to all who ask: `status --check`, `/readyz`, the metrics, the alerts and the page.

`TABLE` says for each situation of a node what they say, and one test takes a daemon through all of them.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from criproxy import __version__
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.daemon.options import agent, read_only
from criproxy.daemon.problems import Problems
from criproxy.deviceplugin.daemon_client.asking import report
from criproxy.model.text.notices import NOT_READY
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet
from tests.addresses import free_address
from tests.daemon.test_serve_configuration import BAD, GOOD, run
from tests.daemons import LIMIT_S, Serve, until
from tests.deploy.firing import Case, assert_fire, samples
from tests.hasty import SILENT_S

POLL_S = 0.1
"""How often the kubelet asks for the runtime's status, and what this test waits for."""
PAGE_S = 5.0
"""How long a page may show something else."""
PROBLEMS = "criproxy_problems"


@dataclass
class Seen:
    """What everybody says at one moment."""

    status: int
    """The exit status of `status --check`."""
    checked: Mapping[str, str]
    """Sentences of `status --check`, by kind."""
    ready: tuple[int, str]
    """Status and text of `/readyz`."""
    metrics: str
    banner: list[str]
    """What the page says is wrong."""

    @property
    def agrees(self) -> bool:
        """Whether `/readyz`, the metrics and the page say what `status --check` says."""
        stopping = [text for kind, text in self.checked.items() if kind in NOT_READY]
        ready = (503, "\n".join(stopping) + "\n") if stopping else (200, "ok\n")
        counted = {labels["kind"] for name, labels, value in samples(self.metrics) if name == PROBLEMS and value}
        is_ready = self.value("criproxy_ready") == (not stopping)
        return (
            self.ready == ready and is_ready and counted == {*self.checked} and self.banner == [*self.checked.values()]
        )

    def value(self, name: str, **labels: str) -> float | None:
        """The value of a metric; None if it is absent."""
        for sample, has, value in samples(self.metrics):
            if sample == name and labels.items() <= has.items():
                return value
        return None


@dataclass
class Node:
    """A daemon that is served by an embedded runtime, and called by a kubelet."""

    directory: Path
    runtime: EmbeddedRuntime
    serve: Serve
    session: aiohttp.ClientSession
    doing: asyncio.Task[None] | None = None
    """What another program does."""
    away: Path | None = None
    """The cgroup that is not where it was."""
    _polls: asyncio.Task[None] | None = None

    def begin_calls(self) -> None:
        """Let the kubelet ask for the runtime's status, as long as it lives."""
        self._polls = asyncio.create_task(self._poll())

    async def end_calls(self) -> None:
        """Let the kubelet end."""
        if self._polls is not None:
            self._polls.cancel()
            with suppress(asyncio.CancelledError):
                await self._polls

    async def _poll(self) -> None:
        """As a kubelet, which connects again within seconds: gRPC's own pauses grow to minutes."""
        while True:
            client = RuntimeClient(f"unix://{self.serve.socket}")
            try:
                while True:
                    await client.version()
                    await asyncio.sleep(POLL_S)
            except RuntimeCallError:
                await asyncio.sleep(POLL_S)
            finally:
                await client.close()

    async def reads(self, group: Path) -> None:
        """Return when the daemon knows that cgroup: what somebody writes there is put back."""
        file = group / "cpuset.cpus"
        before = file.read_text()
        file.write_text("0-3\n")
        await until(lambda: file.read_text() == before)

    async def look(self) -> Seen:
        """Ask everybody."""
        status, checked = await self.serve.json("status", "--check")
        assert checked["problems"] == [each["text"] for each in checked["found"]]
        assert (status == 1) == bool(checked["problems"] or checked["under_way"])
        ready = await self._get("/readyz")
        assert (await self._get("/healthz"))[0] == 200
        _, metrics = await self._get("/metrics")
        kinds = {each["kind"]: each["text"] for each in checked["found"]}
        return Seen(status, kinds, ready, metrics, await self._banner(checked["problems"]))

    async def _get(self, path: str) -> tuple[int, str]:
        async with self.session.get(path) as answer:
            return answer.status, await answer.text()

    async def _banner(self, wanted: list[str]) -> list[str]:
        """What the page gets: at once what another page had moments ago, and then what is there now."""
        shown: list[str] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(PAGE_S), self.session.get("/api/stream") as answer:
                async for line in answer.content:
                    if line.startswith(b"data:"):
                        parts = json.loads(line.removeprefix(b"data:"))["parts"]
                        shown = parts.get("status", {"problems": shown})["problems"]
                        if shown == wanted:
                            break
        return shown

    async def until(self, wanted: Callable[[Seen], bool]) -> Seen:
        """What everybody says as soon as it is as wanted."""
        seen = await self.look()
        with suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_S):
                while not wanted(seen):
                    await asyncio.sleep(POLL_S)
                    seen = await self.look()
        return seen


Step = Callable[[Node], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One situation."""

    begin: Step
    end: Step
    kind: str
    """Of the problem."""
    text: str
    """A part of its sentence."""
    alerts: str = "CriproxyProblem"
    """Those that fire if it lasts."""
    also: str = ""
    """Kinds of problems that come with it."""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """Metrics that say it in addition to ``criproxy_problems``."""

    def shows(self, seen: Seen) -> bool:
        """Whether there is this problem and no other one, and all have heard of it: they are asked one by one."""
        return seen.agrees and {self.kind} <= seen.checked.keys() <= {self.kind, *self.also.split()}


async def nothing(_node: Node) -> None:
    """Do nothing."""


async def begin_calls(node: Node) -> None:
    """The kubelet calls."""
    node.begin_calls()


async def stop_runtime(node: Node) -> None:
    """The runtime ends."""
    await node.runtime.stop()
    (node.directory / "runtime.sock").unlink(missing_ok=True)


async def start_runtime(node: Node) -> None:
    """It comes again."""
    node.runtime = EmbeddedRuntime(node.directory / "runtime.sock", RuntimeOptions(host_root=node.directory))
    await node.runtime.start()


async def lose_state(node: Node) -> None:
    """A file is in place of the state directory; the disk is checked with the runtime's lists, which end a bypass."""
    (node.directory / "state").rename(node.directory / "gone")
    (node.directory / "state").touch()
    for word in ("on", "off"):
        await node.serve.command("bypass", word)


async def find_state(node: Node) -> None:
    """It is back."""
    (node.directory / "state").unlink()
    (node.directory / "gone").rename(node.directory / "state")


def putting(text: str) -> Step:
    """Somebody replaces the policy file."""

    async def put(node: Node) -> None:
        new = node.directory / "policy.new"
        new.write_text(text)
        new.rename(node.serve.policy)

    return put


def ordered(*words: str) -> Step:
    """Somebody gives a command."""

    async def order(node: Node) -> None:
        assert (await node.serve.command(*words))[0] == 0, words

    return order


async def break_socket(node: Node) -> None:
    """The socket's file is removed, and something else is in its place."""
    node.serve.socket.unlink()
    node.serve.socket.mkdir()


async def mend_socket(node: Node) -> None:
    """Nothing is there, so that criproxy can listen again."""
    node.serve.socket.rmdir()


async def begin_fight(node: Node) -> None:
    """Another program writes the cpuset of a container, again and again."""
    key = await run(node.serve, "fought", 1)
    (file,) = (path / "cpuset.cpus" for path in (node.directory / "sys/fs/cgroup/cpuset").rglob(key))

    async def fight() -> None:
        while True:
            if file.exists():
                file.write_text("0-3\n")
            await asyncio.sleep(0.01)

    node.doing = asyncio.create_task(fight())


async def begin_nonsense(node: Node) -> None:
    """A client breaks the protocol on each of its connections."""

    async def talk() -> None:
        while True:
            reader, writer = await asyncio.open_unix_connection(node.serve.socket)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 2)
            await reader.read()
            writer.close()
            await asyncio.sleep(0.05)

    node.doing = asyncio.create_task(talk())


async def end_fight(node: Node) -> None:
    """It has ended, and so has the pod."""
    assert node.doing is not None
    node.doing.cancel()
    await end_pods(node)


async def lose_cgroup(node: Node) -> None:
    """The cgroup of a container is gone."""
    key = await run(node.serve, "lost", 1)
    (group,) = (node.directory / "sys/fs/cgroup/cpuset").rglob(key)
    await node.reads(group)
    group.rename(node.directory / "away")
    node.away = group


async def find_cgroup(node: Node) -> None:
    """It is back."""
    assert node.away is not None
    (node.directory / "away").rename(node.away)
    await end_pods(node)


async def end_pods(node: Node) -> None:
    """All pods end."""
    async with node.serve.client() as client:
        for sandbox in await client.list_pod_sandbox():
            await MiniKubelet(client).remove_pod(sandbox.id)


async def ask_in_vain(node: Node) -> None:
    """A pod with a card is created, and the kubelet says nothing about it."""
    section = "devices: {classes: [nvidia], podresources: {socket: /none.sock}, checkpoint: /none}\n"
    await node.serve.reload(f"{GOOD}{section}")
    await run(node.serve, "blind", 1)


async def without_devices(node: Node) -> None:
    """Devices are no matter of criproxy any more."""
    await end_pods(node)
    await node.serve.reload(GOOD)


def told(command: str, **arguments: object) -> Step:
    """The device plugin tells the daemon something."""

    async def tell(node: Node) -> None:
        await report(str(node.serve.control), command, arguments)

    return tell


def reported(**more: object) -> Step:
    """The device plugin reports *more*."""
    return told("device-inventory", version=__version__, **more)


gone = told("device-plugin", running=False)
UNREGISTERED = {"name": "nvidia.com/gpu", "device_class": "nvidia", "registered": False, "problem": "refused"}
SICK = {"device_class": "nvidia", "id": "GPU-a", "healthy": False, "reason": "XID 79", "since_s": 1.7e9}

SILENT = "CriproxyKubeletSilent CriproxyNotReady"
TABLE = {
    "the kubelet has never called": Row(
        nothing, begin_calls, "kubelet", "the kubelet has never called criproxy since it started", SILENT
    ),
    "the kubelet has ended": Row(
        Node.end_calls, begin_calls, "kubelet", "the kubelet has not called criproxy since 20", SILENT
    ),
    "the kubelet cannot get through": Row(
        begin_nonsense,
        end_fight,
        "kubelet",
        "criproxy closes the kubelet's connections, the last one because the kubelet broke the protocol: ",
        SILENT,
    ),
    "the runtime has ended": Row(
        stop_runtime,
        start_runtime,
        "runtime",
        "the runtime",
        "CriproxyRuntimeDown CriproxyNotReady CriproxyResyncOld",
        gauges={"criproxy_runtime_up": 0},
    ),
    "the state directory is gone": Row(
        lose_state,
        find_state,
        "store",
        "the state on disk is out of date",
        "CriproxyStateNotStored CriproxyNotReady",
        also="config-not-kept failure",
        gauges={"criproxy_store_current": 0},
    ),
    "the socket of the kubelet is gone": Row(
        break_socket, mend_socket, "socket", "nobody can connect to criproxy on ", "CriproxyNotReady"
    ),
    "the policy file is bad": Row(
        putting(BAD["no-yaml"][0] or ""),
        putting(GOOD),
        "config",
        "the policy file is not in effect: ",
        "CriproxyConfigNotInForce",
        gauges={"criproxy_config_problem": 1},
    ),
    "somebody fights for a cpuset": Row(
        begin_fight,
        end_fight,
        "drift",
        "another program changes the cpuset of default/fought/main again and again",
        "CriproxyProblem CriproxyDrift",
    ),
    "the cgroup of a container is gone": Row(
        lose_cgroup,
        find_cgroup,
        "cgroup",
        "the runtime reports that default/lost/main is running, but its cgroup is gone",
    ),
    "the kubelet tells nothing of cards": Row(
        ask_in_vain, without_devices, "no-evidence", "the kubelet has not answered on /none.sock and /none"
    ),
    "the device plugin refuses its file": Row(
        reported(refused="a bracket is not closed"),
        gone,
        "device-plugin-config",
        "the device plugin does not use its present configuration files",
    ),
    "NVML fails": Row(
        reported(nvml="NVML: Unknown Error", nvml_since_s=1e9),
        gone,
        "nvml",
        "NVML has not worked since 2001-09-09T01:46:40.000Z: NVML: Unknown Error",
    ),
    "the device plugin is not registered": Row(
        reported(resources=[UNREGISTERED]),
        gone,
        "not-registered",
        "the kubelet has not accepted resources of the device plugin: nvidia.com/gpu (refused)",
    ),
    "no card is healthy": Row(
        reported(cards=[SICK]), gone, "no-healthy-card", "no card of the class nvidia is healthy"
    ),
    "a directory of a vGPU cannot be removed": Row(
        reported(unremoved="/vgpu/.x/y: Permission denied"), gone, "vgpu-directories", "/vgpu/.x/y: Permission denied"
    ),
    "the bypass is on": Row(ordered("bypass", "on"), ordered("bypass", "off"), "bypass", "", "CriproxyBypassOrdered"),
    "the node is released": Row(
        ordered("release"),
        ordered("release", "--undo"),
        "released",
        "the node is released",
        "CriproxyReleased",
        gauges={"criproxy_released": 1},
    ),
}


@asynccontextmanager
async def serving(directory: Path, blind: str = "") -> AsyncIterator[Node]:
    """A node of four CPUs, whose kubelet does not call yet; with *blind*, see `tests.hasty`."""
    address = free_address()
    runtime = EmbeddedRuntime(directory / "runtime.sock", RuntimeOptions(host_root=directory))
    serve = Serve(directory, "--http", address, policy=GOOD, cpus="0-3", program=("-m", "tests.hasty"), BLIND=blind)
    await runtime.start()
    async with serve, aiohttp.ClientSession(f"http://{address}") as session:
        node = Node(directory, runtime, serve, session)
        try:
            yield node
        finally:
            await node.end_calls()
            await node.runtime.stop()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """The node."""
    async with serving(tmp_path) as node:
        yield node


@pytest.mark.parametrize("which", ["socket", "control", "read_only", "agent"])
async def test_a_socket_whose_file_is_removed_comes_again(node: Node, which: str) -> None:
    """The kubelet and commands reach criproxy again within seconds; connections that are open go on."""
    places = {place.__name__: Path(place(str(node.serve.control))) for place in (read_only, agent)}
    path = places.get(which) or getattr(node.serve, which)
    async with node.serve.client() as open_client, node.serve.client() as new_client:
        await open_client.version()
        begun = file_of(path)
        await asyncio.to_thread(path.unlink)

        await until(lambda: file_of(path) not in (None, begun))
        await open_client.version()
        await new_client.version()
    assert (await node.serve.command("bypass", "status"))[0] == 0
    assert "the socket's file was gone" in node.serve.log.read_text()
    assert await node.serve.stop() == 0
    assert file_of(path) is None


async def test_a_kubelet_whose_call_hangs_in_the_runtime_is_not_silent(node: Node) -> None:
    """It begins no other call until that one is answered, and only the runtime is at fault."""
    await stop_runtime(node)
    options = RuntimeOptions(host_root=node.directory, latency_s=3600.0)
    node.runtime = EmbeddedRuntime(node.serve.runtime, options)
    await node.runtime.start()
    kubelet = RuntimeClient(f"unix://{node.serve.socket}", timeout_s=4 * LIMIT_S)
    calling = asyncio.create_task(kubelet.version())
    kinds, age_s = set[str](), 0.0
    async with asyncio.timeout(2 * LIMIT_S):
        while kinds.isdisjoint({"runtime", "resync"}) or age_s < SILENT_S:
            status = await node.serve.ask("status", check=True)
            kinds, age_s = {each["kind"] for each in status["found"]}, status["kubelet"]["last_call_s"] or 0.0

    assert "kubelet" not in kinds
    calling.cancel()
    await kubelet.close()


async def test_a_defect_of_what_looks_for_problems_hides_nothing(tmp_path: Path) -> None:
    """Metrics and health are still there, and both say that it failed."""
    async with (
        serving(tmp_path, "1") as node,
        node.session.get("/metrics") as metrics,
        node.session.get("/readyz") as ready,
    ):
        found = {labels.get("kind"): value for name, labels, value in samples(await metrics.text()) if name == PROBLEMS}

        assert (metrics.status, ready.status, found.get("failure")) == (200, 200, 1.0)


def file_of(path: Path) -> int | None:
    """The inode of what is at *path*; None if nothing is."""
    return path.stat().st_ino if path.exists() else None


async def test_everybody_says_the_same(tmp_path: Path, node: Node) -> None:
    """In each situation of the table, and before and after it; an alert for each problem fires."""
    found: dict[str, tuple[Seen, Seen]] = {}
    well = Seen(0, {}, (200, "ok\n"), "", [])
    for name, row in TABLE.items():
        await row.begin(node)
        seen = await node.until(row.shows)
        found[name] = well, seen
        print(f"{name}: {seen.checked}")

        assert (seen.status, row.text in seen.checked.get(row.kind, "(nothing)")) == (1, True), (name, seen.checked)
        assert row.shows(seen), (name, seen)
        for gauge, value in row.gauges.items():
            assert (gauge, seen.value(gauge)) == (gauge, value), name

        await row.end(node)
        well = await node.until(lambda seen: seen.agrees and not seen.checked)
        assert (well.status, well.checked, well.agrees) == (0, {}, True), (name, well)
    found["all is well"] = well, well
    assert_alerts(tmp_path, found)


def assert_alerts(directory: Path, found: Mapping[str, tuple[Seen, Seen]]) -> None:
    """If a situation lasts, exactly the alerts of the table fire, and none fires when all is well."""
    cases = []
    for name, (well, seen) in found.items():
        ages = {} if seen.value("criproxy_runtime_up") else {"criproxy_resync_age_seconds": 60.0}
        alerts = TABLE[name].alerts.split() if name in TABLE else ()
        cases.append(Case(name, alerts, well.metrics, seen.metrics, ages=ages))
    assert_fire(directory, cases)


def test_how_long_it_has_run_does_not_follow_the_clock_on_the_wall() -> None:
    """A clock that is set changes when it started, and not for how long it has run."""
    clock = [0.0]
    part: Any = None
    problems = Problems(part, part, part, part, clock=lambda: clock[0])
    assert time.time() - problems.started_s < 5
    clock[0] = 3600.0  # an hour has passed, and the clock on the wall was set back by an hour
    assert 3595 < time.time() - problems.started_s < 3605
