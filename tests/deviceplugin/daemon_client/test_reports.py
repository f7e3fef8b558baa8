"""What the daemon is told of cards."""

import asyncio
from asyncio import to_thread
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from criproxy import __version__
from criproxy.deviceplugin.cards.detected_cards import DetectedCard
from criproxy.deviceplugin.daemon_client.reports import Reports
from criproxy.deviceplugin.health.cards_health import CardState
from criproxy.deviceplugin.health.health import new, step, xid_event
from criproxy.devices.plugin.published import Published
from criproxy.errors import CriproxyError
from criproxy.process.control_socket import ControlServer
from criproxy.wire.sockets import listen
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.news import PATIENT_S, running
from tests.deviceplugin.node import Log


@pytest.fixture
def path(folder: Path) -> Path:
    """Return where the daemon listens."""
    return folder / "control.sock"


async def found_at(path: Path, former: Daemon | None = None) -> Daemon:
    """Start another daemon, which takes the place of the *former* one at once."""
    daemon = Daemon(beside := path.with_name("other.sock"))
    await daemon.start()
    if former:
        await former.stop()
    await to_thread(beside.rename, path)
    return daemon


async def test_a_report_that_was_missed_is_repeated_when_the_daemon_is_back(path: Path) -> None:
    """Soon, and not only when it is time for the next one; so is what is offered, for another daemon."""
    log = Log()
    reports = Reports(str(path), lambda: Published(version="1"), log, interval_s=3600.0)
    async with running(reports.run()):
        reports.enqueue(("npu", "npu0"), SICK)
        await log.until(lambda: "the daemon does not answer: reports about cards are pending" in log.events())

        daemon = Daemon(path)
        await daemon.start()
        (incident,) = await daemon.until_said("device-incident", 1)
        assert incident["card"] == "npu0"
        await daemon.until_said("device-inventory", 1)
        await daemon.stop()
        reports.request()  # is missed
        await log.until(lambda: not reports.reachable)
        other = await found_at(path)
        await other.until_said("device-inventory", 1)

        assert other.said("device-incident") == []
        await other.stop()


SICK = CardState(step(new(0.0), 1.0, xid_event(79)), DetectedCard(), frozenset(), unhealthy_since_s=5.0)
TOO_OLD = "the daemon is too old for a report of the device plugin, which waits for a newer one"
DIFFERENT = "the daemon and the device plugin are of different versions"


@asynccontextmanager
async def reporting(path: Path, log: Log) -> AsyncIterator[Reports]:
    """Reports that are sent again and again."""
    reports = Reports(str(path), lambda: Published(version="1"), log, interval_s=0.05)
    async with running(reports.run()):
        yield reports


async def test_a_report_that_an_older_daemon_does_not_know_waits_for_a_newer_one(path: Path) -> None:
    """It is not lost: the log says once why it waits, and the daemon that comes next gets it."""
    log, older = Log(), Daemon(path, lacks=("device-incident",))
    await older.start()
    async with reporting(path, log) as reports:
        reports.enqueue(("npu", "npu0"), SICK)
        await log.until(lambda: TOO_OLD in log.events())
        await older.until_said("device-inventory", 3)
        assert (reports.pending, log.events().count(TOO_OLD)) == (1, 1)

        newer = await found_at(path, older)
        (incident,) = await newer.until_said("device-incident", 1)
        assert incident["card"] == "npu0"
        await newer.until_said("device-inventory", 1)
        assert reports.pending == 0
        await newer.stop()


@pytest.mark.parametrize(("version", "compared"), [("99.0.0", "newer"), ("0.0.1", "older")])
async def test_a_daemon_of_another_version_is_logged_once(path: Path, version: str, compared: str) -> None:
    """As long as its version stays; a daemon that says nothing of its version is not judged."""
    log, daemon = Log(), Daemon(path, device_inventory={"version": version})
    await daemon.start()
    async with reporting(path, log):
        await daemon.until_said("device-inventory", 3)
        daemon.answers["device_inventory"] = {}
        await daemon.until_said("device-inventory", 5)
        daemon.answers["device_inventory"] = {"version": __version__}
        await daemon.until_said("device-inventory", 7)
        await daemon.stop()

    assert [keys for event, keys in log.lines if event == DIFFERENT] == [
        {"daemon": version, "own": __version__, "daemon_is": compared}
    ]


async def test_a_report_that_the_daemon_could_not_store_is_repeated_soon(path: Path) -> None:
    """Not only with the next report of all cards, and the log has one line about it."""
    log, asked, stored = Log(), list[str](), asyncio.Event()

    async def incident(arguments: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(arguments["card"])
        if len(asked) < 3:
            raise CriproxyError("the disk is full")
        stored.set()
        return {"stored": True}

    async def inventory(_: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    server = ControlServer({"device-incident": incident, "device-inventory": inventory})
    await server.start(listen(str(path), 0o600).sock)
    reports = Reports(str(path), lambda: Published(version="1"), log, interval_s=3600.0)
    async with running(reports.run()):
        reports.enqueue(("npu", "npu0"), SICK)
        async with asyncio.timeout(PATIENT_S):
            await stored.wait()

        assert asked == ["npu0"] * 3
        assert log.events() == ["the daemon rejects a report about cards"]
    await server.stop()
