"""The whole watcher: from what a program says of processes to what the daemon is told, and who is killed."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.deviceplugin.usage import class_watch
from criproxy.deviceplugin.usage import watcher as watcher_module
from criproxy.deviceplugin.usage.watcher import Watcher
from criproxy.devices.classes.vgpu_profiles import Profile
from criproxy.devices.plugin.plan import PluginPlan, QuotaActions, QuotaPlan, UsageSource
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.news import poll
from tests.deviceplugin.node import Log
from tests.deviceplugin.usage.hosts import container_id, grant, put_process

QUOTA = QuotaPlan(period_s=1.0, grace_s=0.1, samples=2)
"""Programs print more often, so that no reading comes after a pause, however slow the machine is."""
WEB, BATCH = container_id("web"), container_id("batch")


class Node:
    """A watcher of the class ali-npu, whose use a file says that a program prints again and again."""

    def __init__(self, folder: Path, **quota: Any) -> None:  # noqa: ANN401
        self.folder = folder
        self.log = Log()
        self.said = folder / "said"
        self.card = "0"
        """What the program calls npu0."""
        self.daemon = Daemon(folder / "control.sock", grant("web"), grant("batch"))
        command = ("/bin/sh", "-c", f"while cat {self.said}; do sleep 0.05; done")
        usage = (UsageSource(kind="ali-npu", source="command", command=command),)
        self.plan = PluginPlan(advertised=(), usage=usage, quota=replace(QUOTA, **quota))
        put_process(folder, 10, "web")
        put_process(folder, 20, "batch")
        put_process(folder, 30)

    def say(self, **memory_mib: int) -> None:
        """Let processes use so much of npu0 from now on: ``p10=900``."""
        processes = [
            {"pid": int(name[1:]), "card": self.card, "memory_mib": mib, "cores_percent": 5}
            for name, mib in memory_mib.items()
        ]
        cards = [{"card": self.card, "memory_mib": sum(memory_mib.values()), "total_mib": 32768}]
        self.print({"processes": processes, "cards": cards})

    def print(self, reading: dict[str, Any]) -> None:
        """Let the program print this from now on."""
        new = self.folder / "said.new"
        new.write_text(json.dumps(reading) + "\n")
        new.rename(self.said)

    @asynccontextmanager
    async def watching(self, *, daemon: bool = True) -> AsyncIterator[Watcher]:
        """Run the watcher, as the device plugin does, beside the daemon."""
        if daemon:
            await self.daemon.start()
        tasks = Tasks(self.log, Failures())
        watcher = Watcher(str(self.folder / "control.sock"), self.folder, self.log)
        watcher._grants.refresh_s = 3600.0
        watcher.use(self.plan)
        watcher._reports.period_s = 0.05
        watcher.set_cards({"ali-npu": {"0": "npu0", "npu0": "npu0"}}, has_nvml=False)
        watcher.start(tasks)
        try:
            yield watcher
        finally:
            await tasks.stop()
            if daemon:
                await self.daemon.stop()

    async def readings(self, count: int) -> None:
        """Return after so many more reports, each of which needs a reading."""
        for _ in range(count):
            self.say(p10=9000, p30=len(self.daemon.said("device-usage")))
            await self.daemon.until_said("device-usage", len(self.daemon.said("device-usage")) + 1)


async def test_a_container_over_its_quota_is_reported_once(folder: Path) -> None:
    """Who is within its quota is not, and neither is what belongs to no container; its end is reported, too."""
    node = Node(folder)
    node.say(p10=9000, p20=8600, p30=30000)
    async with node.watching():
        (over,) = await node.daemon.until_said("quota-incident")
        await node.readings(5)
        assert len(node.daemon.said("quota-incident")) == 1
        node.say(p10=8192, p20=8600)
        (_, within) = await node.daemon.until_said("quota-incident", 2)

    about = {"container_id": WEB, "device_class": "ali-npu", "card": "npu0", "quantity": "memory"}
    amounts = {"used": 9000, "allowed": 8192, "since_s": over["since_s"]}
    assert over == {**about, **amounts, "over": True, "action": "stop", "stop_timeout_s": 10.0}
    assert within == {**about, "over": False}


async def test_use_is_reported_by_container(folder: Path) -> None:
    """With the cards, and what belongs to no container; it is told again only when it changes."""
    node = Node(folder)
    node.say(p30=70)
    async with node.watching() as watcher:
        watcher._reports.repeat_s = 3600.0
        await poll(lambda: watcher._grants.granted is not None)
        node.say(p10=900, p20=800, p30=70)
        found = await node.daemon.until_use("'memory_mib': 900")
        (use,) = found["classes"]
        node.say(p10=901, p20=800, p30=70)
        again = await node.daemon.until_use("'memory_mib': 901")
        assert len(node.daemon.said("device-grants")) == 1
        told = [each["classes"] for each in node.daemon.said("device-usage")]
        assert told[-2:] == [found["classes"], again["classes"]]

    web, batch = ({"container_id": each, "kind": "ali-npu", "card": "npu0"} for each in (WEB, BATCH))
    assert use == {
        "kind": "ali-npu",
        "source": "command",
        "cards": [{"card": "npu0", "memory_mib": 1770, "total_mib": 32768}],
        "containers": [
            {**web, "memory_mib": 900, "cores_percent": 5.0},
            {**batch, "memory_mib": 800, "cores_percent": 5.0},
        ],
        "others": [{"container_id": "", "kind": "ali-npu", "card": "npu0", "memory_mib": 70, "cores_percent": 5.0}],
    }
    assert again["classes"][0]["containers"][0]["memory_mib"] == 901


@contextmanager
def process_of(node: Node, container: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that counts as one of a container."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        put_process(node.folder, process.pid, container)
        yield process
        process.kill()


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Return how a process has ended, when it has."""
    async with asyncio.timeout(60):
        return await asyncio.to_thread(process.wait)


async def test_the_process_that_uses_most_is_killed_when_the_daemon_has_stored_it(folder: Path) -> None:
    """Only it, and once: another one that takes its place belongs to the same incident."""
    node = Node(folder, actions=QuotaActions(memory="kill-process"))
    with process_of(node, "web") as most, process_of(node, "web") as less:
        node.say(**{f"p{most.pid}": 8000, f"p{less.pid}": 7000})
        async with node.watching() as watcher:
            assert await ended(most) == -signal.SIGKILL
            node.say(**{f"p{less.pid}": 15000})
            count = len(node.daemon.said("device-usage"))
            await node.daemon.until_said("device-usage", count + 1)
            await node.log.until(lambda: watcher.incidents.kills == 1)
        assert less.poll() is None
        assert node.daemon.said("quota-incident")[0]["pid"] == most.pid


async def test_a_file_is_the_hosts(folder: Path) -> None:
    """It is below the directory that has the host's files, as the policy file and all others that it names."""
    node = Node(folder)
    node.say(p10=100)
    source = UsageSource(kind="ali-npu", source="file", file="/said")
    node.plan = replace(node.plan, usage=(source,), quota=replace(QUOTA, period_s=4.0))
    async with node.watching():
        await node.daemon.until_use("'memory_mib': 100")


async def test_why_nothing_is_known_is_said_once(folder: Path) -> None:
    """In the log, in metrics, and to the daemon."""
    node = Node(folder)
    async with node.watching() as watcher:  # the file is not there: the program ends at once
        await node.daemon.until_use("/bin/sh has exited")
        assert watcher.problems == {"ali-npu": True}
        node.say(p10=100)
        await node.log.until(lambda: "usage of cards is known again" in str(node.log.lines))
        assert watcher.problems == {"ali-npu": False}
        await node.daemon.until_use("'memory_mib': 100")

    assert sum("/bin/sh has exited" in str(line) for line in node.log.lines) == 1


async def test_a_report_of_use_that_hangs_holds_nothing_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is never more than one of them, and who is over its quota is told meanwhile."""
    monkeypatch.setattr(watcher_module, "REPORT_TIMEOUT_S", 60.0)  # else another one follows after a while
    node = Node(folder)
    node.daemon.hangs = {"device-usage"}
    node.say(p10=9000)
    async with node.watching():
        (over,) = await node.daemon.until_said("quota-incident")
        assert over["container_id"] == WEB
        assert len(node.daemon.said("device-usage")) <= 1


@pytest.mark.parametrize(
    ("profile", "quota", "sentence"),
    [
        pytest.param(Profile(name="g", kind="npu"), QUOTA, "has no source of usage data", id="unwatched"),
        pytest.param(
            Profile(name="g", kind="ali-npu"),
            QuotaPlan(actions=QuotaActions(memory="kill-process")),
            "the unit lacks CAP_KILL",
            id="may-not-kill",
        ),
        pytest.param(
            Profile(name="g", kind="ali-npu", enforce=("hami-core",)),
            QuotaPlan(actions=QuotaActions(memory="kill-process")),
            "",
            id="kills-nobody-of-a-profile-without-watch",
        ),
        pytest.param(Profile(name="g", kind="ali-npu"), QUOTA, "", id="all-is-well"),
    ],
)
def test_what_cannot_be_done_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, profile: Profile, quota: QuotaPlan, sentence: str
) -> None:
    """Once for each plan."""
    monkeypatch.setattr(watcher_module, "may_kill", lambda: False)
    node = Node(folder)
    watcher = Watcher("/nonexistent", folder, node.log)
    for _ in range(2):
        watcher.use(replace(node.plan, profiles=(profile,), quota=quota))

    assert [sentence in str(line) for line in node.log.lines] == ([True] if sentence else [])


async def test_another_plan_is_followed(folder: Path) -> None:
    """A class that is not in it any more is not watched, its program is gone, and its incidents are over."""
    node = Node(folder)
    node.say(p10=9000)
    async with node.watching() as watcher:
        await node.daemon.until_said("quota-incident")
        watcher.use(PluginPlan(advertised=(), quota=QUOTA))
        count = len(node.daemon.said("device-usage")) + 1
        while (await node.daemon.until_said("device-usage", count))[-1].get("classes"):
            count += 1  # a report was on its way
        assert watcher.problems == {}
        (_, within) = await node.daemon.until_said("quota-incident", 2)
        assert (within["container_id"], within["device_class"], within["over"]) == (WEB, "ali-npu", False)


@pytest.mark.parametrize("problem", ["NVML does not list the cards", ""], ids=["not-known", "no-cards"])
async def test_use_is_unknown_where_nvml_cannot_be_asked_of_cards(folder: Path, problem: str) -> None:
    """It is nothing only where there are no such cards; before that is known, nothing is known of their use, either."""
    node = Node(folder)
    node.plan = replace(node.plan, usage=(UsageSource(kind="nvidia", source="nvml"),))
    async with node.watching() as watcher:
        watcher.set_cards({}, has_nvml=False, nvml_problem=problem)
        await node.daemon.until_use(problem or "'source': 'nvml'}")
        assert watcher.problems == {"nvidia": bool(problem)}


async def test_processes_that_the_kernel_does_not_describe_are_a_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for no longer than a while, and the class is watched again when the kernel answers."""
    monkeypatch.setattr(class_watch, "SEARCH_TIMEOUT_S", 0.05)
    node = Node(folder)
    node.say(p10=100)
    stat = folder / "proc/10/stat"
    stat.rename(folder / "stat")
    os.mkfifo(stat)
    async with node.watching():
        await node.daemon.until_use("finding the containers of the processes in /proc took too long")
        stat.rename(folder / "fifo")
        (folder / "stat").rename(stat)
        os.close(os.open(folder / "fifo", os.O_RDWR))  # who waits to read it goes on, if somebody has come to that yet
        await node.daemon.until_use("'memory_mib': 100")


async def test_a_program_that_hangs_is_not_started_again_by_another_plan(folder: Path) -> None:
    """The class has one program at a time: there is a problem for as long as a former one cannot be ended."""
    node = Node(folder)
    async with node.watching() as watcher:
        await node.daemon.until_use("/bin/sh has exited")
        watcher.use(PluginPlan(advertised=(), quota=QUOTA))
        while any("source of" in task.get_name() for task in asyncio.all_tasks()):  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
        (child,) = watcher._children.values()
        await child.end()
        await child.start(("/bin/sleep", "1000"))  # as if it could not be killed
        node.say(p10=100)
        watcher.use(node.plan)
        await node.daemon.until_use("a previous one still hangs")
        await node.daemon.until_use("'memory_mib': 100")


async def test_another_driver_restarts_only_what_asks_it(folder: Path) -> None:
    """Programs of other classes run on."""
    node = Node(folder)
    begun = folder / "begun"
    command = ("/bin/sh", "-c", f"""echo >> {begun}; echo '{{"processes": []}}'; sleep 1000""")
    usage = (UsageSource(kind="npu", source="command", command=command), UsageSource(kind="nvidia", source="nvml"))
    node.plan = replace(node.plan, usage=usage)
    async with node.watching() as watcher:
        watcher._nvml = ("/bin/sh", "-c", """echo '{"processes": [], "unread": {"GPU-0": "hot"}}'; sleep 1000""")
        await node.daemon.until_use("{'kind': 'npu', 'source': 'command'}")
        watcher.set_cards({}, has_nvml=True)
        await node.daemon.until_use("'unread': {'GPU-0': 'hot'}")
        watcher.set_cards({}, has_nvml=False, nvml_problem="the driver is gone")
        await node.daemon.until_use("the driver is gone")
        assert begun.read_text() == "\n"


async def test_a_new_reason_takes_the_place_of_an_older_one(folder: Path) -> None:
    """Where nothing is known of all cards, nobody is told why one of them was not read before."""
    node, gate = Node(folder), folder / "gate"
    first = """echo '{"processes": [], "unread": {"npu0": "hot"}}'"""
    problem = "NVML: unknown error"
    ends = f"""echo '{{"problem": "{problem}"}}'; sleep 1000"""
    command = ("/bin/sh", "-c", f"{first}; while [ ! -e {gate} ]; do sleep 0.01; done; {ends}")
    node.plan = replace(node.plan, usage=(UsageSource(kind="ali-npu", source="command", command=command),))
    async with node.watching():
        await node.daemon.until_use("'unread': {'npu0': 'hot'}")
        gate.touch()
        (use,) = (await node.daemon.until_use(problem))["classes"]

    assert problem in use["problem"]
    assert "unread" not in use


async def test_a_source_that_is_too_slow_to_judge_by_is_a_problem(folder: Path) -> None:
    """Each of its readings begins anew: that nobody is over its quota then is said."""
    node = Node(folder, period_s=0.01)
    command = ("/bin/sh", "-c", f"while cat {node.said}; do sleep 0.2; done")
    node.plan = replace(node.plan, usage=(UsageSource(kind="ali-npu", source="command", command=command),))
    node.say(p10=9000)
    async with node.watching() as watcher:
        told = await node.daemon.until_use("quotas are not checked: readings are more than 0.03 s")
        assert told["classes"][0]["containers"][0]["memory_mib"] == 9000
        watcher.use(replace(node.plan, quota=QuotaPlan(period_s=60.0)))
        await node.log.until(lambda: "usage of cards is known again" in str(node.log.lines))
    assert node.daemon.said("quota-incident") == []


async def test_a_misspelt_reading_neither_ends_an_incident_nor_goes_unnoticed(folder: Path) -> None:
    """What criproxy cannot read is not the use of nothing; keys that it only ignores are in the log, once."""
    text = "readings have unknown keys, which criproxy ignores"
    node = Node(folder)
    node.say(p10=9000)
    async with node.watching():
        await node.daemon.until_said("quota-incident")
        node.print({"processes": [{"pid": 10, "card": "npu0", "memory_mib": 9000, "cores": 5}], "node": "a"})
        await node.log.until(lambda: text in node.log.events())
        node.print({"process": [{"pid": 10, "card": "npu0", "memory_mib": 1}]})
        (use,) = (await node.daemon.until_use("processes is missing"))["classes"]
        assert len(node.daemon.said("quota-incident")) == 1

    assert use["problem"].endswith("printed an invalid reading: processes is missing; unknown keys: process")
    assert [keys for event, keys in node.log.lines if event == text] == [
        {"class": "ali-npu", "keys": "node, processes[].cores"}
    ]
