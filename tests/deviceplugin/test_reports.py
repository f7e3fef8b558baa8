"""What the daemon is told of cards."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from criproxy.deviceplugin.cards_health import CardState
from criproxy.deviceplugin.detected_cards import DetectedCard
from criproxy.deviceplugin.reports import Reports
from criproxy.devices.health import new, step, xid_event
from criproxy.devices.published import Published
from tests.deviceplugin.node import Log
from tests.deviceplugin.test_program_health import Daemon


@pytest.fixture
def path() -> Iterator[Path]:
    """Return where the daemon listens, which has to be a short path."""
    with TemporaryDirectory(prefix="d") as folder:
        yield Path(folder) / "control.sock"


def move(socket: Path, path: Path) -> None:
    """Let a daemon be found at *path*."""
    socket.rename(path)


async def test_a_report_that_was_missed_is_repeated_when_the_daemon_is_back(path: Path) -> None:
    """Soon, and not only when it is time for the next one; so is what is offered, for another daemon."""
    log = Log()
    reports = Reports(str(path), lambda: Published(version="1"), log, interval_s=3600.0)
    running = asyncio.create_task(reports.run())
    reports.enqueue(
        ("npu", "npu0"),
        CardState(step(new(0.0), 1.0, xid_event(79)), DetectedCard(), frozenset(), unhealthy_since_s=5.0),
    )
    await log.until(lambda: "the daemon does not answer: reports about cards are pending" in log.events())

    daemon = Daemon(path)
    server = await daemon.start()
    (incident,) = await daemon.until_incidents(1)
    assert incident["card"] == "npu0"
    await daemon.until_asked("device-inventory", 1)
    await server.stop()
    reports.request()  # is missed
    await log.until(lambda: not reports.reachable)
    other = Daemon(beside := path.with_name("other.sock"))
    server = await other.start()
    move(beside, path)
    await other.until_asked("device-inventory", 1)

    assert other.incidents() == []
    await server.stop()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
