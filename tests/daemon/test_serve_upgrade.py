"""Version N → N + 1 → N on one state directory, as processes, under calls that never cease.

Whether N + 1 has added something beside the tables of N, or has a newer schema number, every container keeps its place.
`tests.packaging.test_installed` does this with the packages under systemd, on containerd.
"""

import asyncio
import json
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from criproxy import __version__
from criproxy.cri.runtime import RuntimeClient
from criproxy.deviceplugin.daemon_client.asking import ask
from criproxy.model.cpuset import format_cpuset
from criproxy.store.schema import VERSION
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet, PodSpec
from tests.daemons import LIMIT_S, Serve, until
from tests.node.world import owner, sharer
from tests.upgrading import NEXT_VERSION, PACKAGE, Load, next_version

ROUNDS_EACH = 6
"""Calls of each kind that a version must have answered before the next one takes over."""
POLICY = """
policy: static
reservedCpus: '0'
devices: {classes: [nvidia], podresources: {socket: ''}, checkpoint: ''}
"""
SICK = {"device_class": "nvidia", "card": "GPU-a", "since_s": 1700000000.0, "reason": "XID 79", "action": "annotate"}
Facts = dict[str, Any]


class Node:
    """The embedded runtime, systemd's socket, and the state directory that the versions share."""

    def __init__(self, directory: Path, runtime: EmbeddedRuntime, passed: socket.socket) -> None:
        self.directory = directory
        self.runtime = runtime
        self.ids: dict[str, str] = {}
        """Pod → its container, of those that stay."""
        self.client = RuntimeClient(f"unix://{directory}/kubelet.sock", timeout_s=20)
        self.kubelet = MiniKubelet(self.client)
        self._passed = passed
        self._control = ""

    @asynccontextmanager
    async def serving(self, tree: Path) -> AsyncIterator[None]:
        """Criproxy of the tree *tree*, until it is told to stop."""
        async with Serve(
            self.directory,
            *("--log-format", "json"),
            policy=POLICY,
            cpus="0-3",
            passed=self._passed,
            PYTHONPATH=str(tree),
            PYTHONSAFEPATH="1",
        ) as serve:
            self._control = str(serve.control)
            yield
            assert await serve.stop() == 0

    async def say(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """Ask the daemon."""
        return await asyncio.to_thread(ask, self._control, command, arguments, LIMIT_S)

    async def ends_with_kept_cpus(self, pod: PodSpec) -> None:
        """Let an owner run and end; its CPUs are kept for its pod."""
        _, ids = await self.kubelet.run_pod(pod)
        self.runtime.exit_container(ids["main"])
        await until(self._keeps)

    async def _keeps(self) -> bool:
        return bool((await self.say("status"))["kept"])

    async def facts(self) -> Facts:
        """What must be the same under each version, of what does not come and go."""
        status, devices = await self.say("status"), await self.say("devices")
        told = (await self.say("explain", container="default/owner/main"))["events"]
        keys = ("cpus", "exclusive_cpus", "reservation")
        stay = [one for one in status["containers"] if one["id"] in self.ids.values()]
        return {
            "places": {one["pod"]: [one[key] for key in keys] for one in stay},
            "cgroups": self.cgroups(),
            "kept": [(each["pod"], each["cpus"]) for each in status["kept"]],
            "incidents": [each["card"] for each in devices["incidents"]],
            "history": [(each["kind"], each["time"]) for each in told[:3]],
        }

    async def notices(self, kind: str) -> list[str]:
        """What status says of a release or a try."""
        return [each["text"] for each in (await self.say("status"))["notices"] if each["kind"] == kind]

    async def settled(self) -> None:
        """Wait until every container is where it should be."""
        await until(self._is_settled)

    async def _is_settled(self) -> bool:
        checked = await self.say("status", check=True)
        return not (checked["problems"] or checked["under_way"])

    def cgroups(self) -> dict[str, str]:
        """Pod → the CPUs in the cgroup of its container."""
        found = {pod: self.runtime.cpuset(key) for pod, key in self.ids.items()}
        return {pod: format_cpuset(cpuset.cpus) if cpuset else "does not run" for pod, cpuset in found.items()}

    def served(self) -> list[str]:
        """The versions that said that they serve, in order."""
        lines = map(json.loads, (self.directory / "serve.log").read_text().splitlines())
        return [line["version"] for line in lines if line["event"] == "serving"]

    def on_disk(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of the database."""
        with closing(sqlite3.connect(self.directory / "state/criproxy.db")) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node on which criproxy does not run yet."""
    with socket.socket(socket.AF_UNIX) as passed:
        passed.bind(str(tmp_path / "kubelet.sock"))
        passed.listen(128)
        async with EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(host_root=tmp_path)) as runtime:
            yield Node(tmp_path, runtime, passed)


Newer = Callable[[bool], Path]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Newer:
    """Version N + 1, with a newer number or without; made once, since it has to be compiled."""
    return cache(lambda number: next_version(tmp_path_factory.mktemp("newer"), newer_number=number))


async def there_and_back(node: Node, newer: Path) -> tuple[Load, list[Facts]]:
    """Run N, N + 1 and N in turn; what was true under each, and the load that they were under."""
    this, found = PACKAGE.parent, list[Facts]()
    async with Load(node.client, node.kubelet, sharer("guest").containers) as load:
        for tree in (this, newer, this):
            async with node.serving(tree):
                if not node.ids:
                    node.ids = await load.run(owner("owner"), sharer("sharer"))
                    await node.ends_with_kept_cpus(owner("keeper"))
                    await node.say("device-incident", **SICK)
                await load.more(ROUNDS_EACH)
                found.append(await node.facts())
                if len(found) == 3:
                    node.ids |= await load.run(owner("late"))
                    await load.end()
    assert (node.served(), load.failing()) == ([__version__, NEXT_VERSION, __version__], [])
    return load, found


async def test_what_is_beside_survives_an_older_version(node: Node, newer: Newer) -> None:
    """Nothing is different under any version: places, kept CPUs, incidents, history; and N leaves alone what is new."""
    _, found = await there_and_back(node, newer(False))

    assert found[0] == found[1] == found[2]
    assert (found[0]["cgroups"], found[0]["incidents"]) == ({"owner": "1", "sharer": "0,3"}, ["GPU-a"])
    assert ([cpus for _, cpus in found[0]["kept"]], node.cgroups()["owner"]) == (["2"], "1")
    assert (node.cgroups()["late"], node.on_disk("PRAGMA user_version")) == ("3", [(VERSION,)])
    assert (node.ids["owner"], "by N + 1") in node.on_disk("SELECT * FROM planted")
    assert node.on_disk("SELECT value FROM meta WHERE key = 'planted'") == [("by N + 1",)]
    assert not list(node.directory.glob("state/criproxy.db.*Z"))


async def test_a_newer_number_moves_nobody(node: Node, newer: Newer) -> None:
    """N sets the database aside, and finds all containers where they are; the rest of what it knew is lost."""
    _, found = await there_and_back(node, newer(True))

    assert (found[0], found[2]["places"]["owner"]) == (found[1], found[0]["places"]["owner"])
    assert found[2]["cgroups"] == {"owner": "1", "sharer": "0,2-3"}, "who shares has the CPU that was kept, too"
    assert (found[2]["kept"], found[2]["incidents"]) == ([], [])
    assert found[2]["history"] != found[0]["history"]
    assert node.cgroups()["owner"] == "1"
    assert node.cgroups()["late"] in ("2", "3"), "what the older version has rebuilt knows the owner"
    assert len(list(node.directory.glob("state/criproxy.db.*Z"))) == 1


@pytest.mark.parametrize("newer_number", [False, True], ids=["beside", "newer-number"])
async def test_a_release_goes_on(node: Node, newer: Newer, newer_number: bool) -> None:
    """Whoever has released a node finds it so after an upgrade and after a downgrade."""
    this = PACKAGE.parent
    said: list[list[str]] = []
    for tree in (this, newer(newer_number), this):
        async with node.serving(tree):
            name = f"pod-{len(said)}"
            node.ids[name] = (await node.kubelet.run_pod(owner(name)))[1]["main"]
            if not said:
                await node.say("release")
            said.append(await node.notices("released"))
    await node.client.close()

    assert [len(each) for each in said] == [1, 1, 1]
    assert said[0] == said[1] == said[2]
    assert set(node.cgroups().values()) == {"0-3"}


@pytest.mark.parametrize("newer_number", [False, True], ids=["beside", "newer-number"])
async def test_a_try_goes_on(node: Node, newer: Newer, newer_number: bool) -> None:
    """The configuration that is tried stays in effect, and at its end all containers are where they were before it."""
    this = PACKAGE.parent
    tried = POLICY.replace("'0'", "'1'") + "apply: all\n"
    before: dict[str, str] = {}
    seen: list[tuple[int, dict[str, str]]] = []
    for tree in (this, newer(newer_number), this):
        async with node.serving(tree):
            if not seen:
                node.ids["owner"] = (await node.kubelet.run_pod(owner("owner")))[1]["main"]
                node.ids["sharer"] = (await node.kubelet.run_pod(sharer("sharer")))[1]["main"]
                before = node.cgroups()
                await node.say("reload-try", text=tried, source="/tried.yaml", time_s=3600)
            await node.settled()
            seen.append((len(await node.notices("try")), node.cgroups()))
            if len(seen) == 3:
                await node.say("reload")
                await node.settled()
                seen.append((len(await node.notices("try")), node.cgroups()))
    await node.client.close()

    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == 1
    assert seen[0][1] != before
    assert seen[3] == (0, before)
