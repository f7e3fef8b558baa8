"""What the daemon is told of quotas, whenever it listens."""

import asyncio
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from criproxy.deviceplugin.daemon_client.asking import DaemonClient
from criproxy.deviceplugin.usage.grants_client import OpenIncident
from criproxy.deviceplugin.usage.processes import Processes
from criproxy.deviceplugin.usage.quota_incidents import QuotaIncidents
from criproxy.deviceplugin.usage.quota_verdicts import Key, Over, Within
from criproxy.devices.usage.values import Process
from criproxy.errors import CriproxyError, UsageError
from criproxy.process.control_socket import ControlServer, UnknownCommand
from criproxy.wire.sockets import listen
from tests.deviceplugin.news import poll, running
from tests.deviceplugin.node import Log
from tests.deviceplugin.usage.hosts import container_id, put_process

KEY = Key(container_id("web"), "npu0", "memory")
OVER = Over(key=KEY, kind="npu", used=9000.4, allowed=8192, over_since_s=1.0, action="stop")


class Told:
    """Incidents that are told to a daemon whose answers a test gives one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = Log()
        self.asked: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self.answers: asyncio.Queue[Mapping[str, Any] | Exception] = asyncio.Queue()
        daemon = DaemonClient(str(folder / "control.sock"), self.log)
        self.incidents = QuotaIncidents(daemon, Processes(folder), self.log, retry_s=0.01)

    async def __aenter__(self) -> Self:
        self._listener = listen(str(self.folder / "control.sock"), 0o600)
        self._server = ControlServer({"quota-incident": self._answer})
        await self._server.start(self._listener.sock)
        self._running = asyncio.create_task(self.incidents.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._server.stop()
        self._listener.close()

    async def _answer(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.put_nowait(arguments)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def has_said(self, text: str) -> bool:
        """Whether the log has *text*."""
        return text in str(self.log.lines)

    async def until_taken(self) -> None:
        """Return when nothing is left to tell."""
        await poll(lambda: not self.incidents.pending)


def test_an_incident_that_was_never_told_is_over_unheard(folder: Path) -> None:
    """By now the container is within its quota: nothing may happen to it."""
    incidents = Told(folder).incidents
    incidents.over(OVER)
    assert incidents.pending == 1
    incidents.within(Within(KEY), "npu")

    assert incidents.pending == 0


@pytest.mark.parametrize("why", [CriproxyError("the disk is full"), UnknownCommand("this daemon knows no command")])
async def test_what_the_daemon_cannot_store_is_told_again(folder: Path, why: CriproxyError) -> None:
    """Also if it is too old; the same, so that it is known to be the same. A request that is wrong is not repeated."""
    async with asyncio.timeout(60), Told(folder) as told:
        told.answers.put_nowait(why)
        told.answers.put_nowait(UsageError("no such container"))
        told.incidents.over(OVER)
        first, second = await told.asked.get(), await told.asked.get()
        await told.until_taken()

    assert first == second
    assert (first["used"], first["allowed"], first["over"]) == (9000.4, 8192, True)
    assert told.asked.empty()
    assert told.has_said(str(why))


async def test_a_lost_answer_is_asked_for_again(folder: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """The daemon learns that nothing was done yet, so that it can say so again."""
    put_process(folder, sleeping.pid, "web")
    told = Told(folder)
    target = Process(pid=sleeping.pid, start_ticks=100)
    told.incidents.over(replace(OVER, action="kill-process", largest=target))
    async with running(told.incidents.run()):
        await told.log.until(lambda: told.has_said("no daemon answers"))
    told.incidents._wanted.set()
    async with told:
        told.answers.put_nowait({"stored": True, "act": True})
        assert (await told.asked.get())["unanswered"] is True
        await told.log.until(lambda: told.incidents.kills == 1)

    assert sleeping.wait() == -signal.SIGKILL


async def test_a_container_that_the_daemon_does_not_see_run_is_told_again(folder: Path) -> None:
    """It may learn a moment later that it runs; others are told meanwhile."""
    async with Told(folder) as told:
        other = Key(container_id("batch"), "npu0", "memory")
        told.answers.put_nowait({"stored": False, "act": False, "why": "the container is not running"})
        told.answers.put_nowait({"stored": True, "act": False})
        told.answers.put_nowait({"stored": True, "act": False})
        told.incidents.over(OVER)
        told.incidents.over(replace(OVER, key=other))
        asked = [(await told.asked.get())["container_id"] for _ in range(3)]
        await told.until_taken()

    assert asked == [KEY.container_id, other.container_id, KEY.container_id]


async def test_nobody_is_killed_who_is_within_its_quota_when_the_daemon_answers(
    folder: Path, sleeping: subprocess.Popen[bytes]
) -> None:
    """The daemon hears that it is over, instead."""
    put_process(folder, sleeping.pid, "web")
    target = Process(pid=sleeping.pid, start_ticks=100)
    async with Told(folder) as told:
        told.incidents.over(replace(OVER, action="kill-process", largest=target))
        await told.asked.get()
        told.incidents.within(Within(KEY), "npu")
        told.answers.put_nowait({"stored": True, "act": True})
        told.answers.put_nowait({"stored": True, "act": False})
        assert (await told.asked.get())["over"] is False
        await told.until_taken()

    assert (told.incidents.kills, told.incidents.kills_failed) == (0, 0)
    assert sleeping.poll() is None


async def test_a_process_is_killed_once_for_each_answer(folder: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """A target of another start has exited, which is no failure; nobody is killed where the daemon does not say so."""
    put_process(folder, sleeping.pid, "web")
    async with Told(folder) as told:
        told.answers.put_nowait({"stored": True, "act": False})
        told.incidents.over(replace(OVER, action="kill-process", largest=Process(pid=sleeping.pid, start_ticks=100)))
        await told.asked.get()
        await told.until_taken()
        assert (told.incidents.kills, told.incidents.kills_failed) == (0, 0)
        for start_ticks, counts in ((99, (0, 0)), (100, (1, 0))):
            target = Process(pid=sleeping.pid, start_ticks=start_ticks)
            told.answers.put_nowait({"stored": True, "act": True})
            told.incidents.over(replace(OVER, action="kill-process", largest=target))
            said = await told.asked.get()
            assert (said["pid"], said["start_ticks"]) == (sleeping.pid, start_ticks)
            word = "killed the" if counts[0] else "had already exited"
            await told.log.until(partial(told.has_said, word))
            assert (told.incidents.kills, told.incidents.kills_failed) == counts

    assert sleeping.wait() == -signal.SIGKILL
    assert not told.has_said("could not kill")


def from_before(pid: int) -> OpenIncident:
    """Return an incident from before a restart, for which a process was to be killed."""
    named = {"container_id": KEY.container_id, "device_class": "npu", "card": "npu0", "quantity": "memory"}
    amounts = {"used": 9000, "allowed": 8192}
    return OpenIncident(**named, **amounts, action="kill-process", pid=pid, start_ticks=100)  # type: ignore[arg-type]


async def test_a_kill_from_before_a_restart_is_told(folder: Path, sleeping: subprocess.Popen[bytes]) -> None:
    """The daemon has to know when: an end of the container soon after is that kill's."""
    put_process(folder, sleeping.pid, "web")
    async with Told(folder) as told:
        told.answers.put_nowait({"stored": True, "act": True})
        told.incidents.finish(from_before(sleeping.pid))
        said = await told.asked.get()
        assert await asyncio.to_thread(sleeping.wait) == -signal.SIGKILL

    assert (said["unanswered"], said["pid"], said["start_ticks"]) == (True, sleeping.pid, 100)
    assert (said["action"], said["used"], said["allowed"], said["over"]) == ("kill-process", 9000, 8192, True)


async def test_a_kill_from_before_a_restart_that_was_done_is_not_repeated(folder: Path) -> None:
    """Its process is gone: the daemon is told nothing, and nothing has failed."""
    async with Told(folder) as told:
        told.incidents.finish(from_before(2**22))
        await told.until_taken()
        assert told.asked.empty()
        told.answers.put_nowait({"stored": True, "act": False})
        told.incidents.within(Within(KEY), "npu")
        assert (await told.asked.get())["over"] is False

    assert (told.incidents.kills, told.incidents.kills_failed) == (0, 0)
    assert not told.has_said("could not kill")


def pending(incidents: QuotaIncidents) -> Mapping[str, Any]:
    """Return what is still to be told of the container."""
    found = incidents._pending.get(KEY)
    assert found is not None
    return found.arguments


def test_what_is_new_is_told_instead_of_what_is_from_before_a_restart(folder: Path) -> None:
    """With another plan the container may have to be stopped by now; if it is within its quota, the daemon hears so."""
    incidents, other, asked = (Told(folder).incidents for _ in range(3))
    incidents.over(OVER)
    incidents.finish(from_before(10))
    assert pending(incidents)["action"] == "stop"

    other.finish(from_before(10))
    other.within(Within(KEY), "npu")
    assert pending(other)["over"] is False

    asked.within(Within(KEY), "npu")
    asked.confirm(replace(from_before(10), action="stop"), is_over=True)
    assert pending(asked)["over"] is False


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_daemon_that_waits_after_its_restart(folder: Path, *, is_over: bool) -> None:
    """It hears how it is now with its incident, by the amounts that it knows."""
    incident = replace(from_before(10), action="stop")
    async with Told(folder) as told:
        told.answers.put_nowait({"stored": True, "act": False})
        told.incidents.confirm(incident, is_over=is_over)
        said = await told.asked.get()
        await told.until_taken()

    assert said["over"] is is_over
    if is_over:
        assert (said["action"], said["used"], said["allowed"]) == ("stop", 9000, 8192)
