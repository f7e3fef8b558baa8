"""Reports of use to a daemon: told again from time to time though there is no news, and after a failure."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.deviceplugin.daemon_client.asking import DaemonClient
from criproxy.deviceplugin.usage.watcher import UsageReports
from criproxy.devices.usage.values import ClassUse
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.news import running
from tests.deviceplugin.node import Log

USE = ClassUse(kind="npu", source="file")


class Reporting:
    """Reports of what is in `uses`, and the daemon, which listens from its start on."""

    def __init__(self, folder: Path) -> None:
        self.daemon, self.log, self.uses = Daemon(folder / "control.sock"), Log(), [USE]
        client = DaemonClient(str(folder / "control.sock"), self.log)
        self.reports = UsageReports(client, lambda: tuple(self.uses), period_s=0.01, repeat_s=0.02)


@pytest.fixture
async def told(folder: Path) -> AsyncIterator[Reporting]:
    """Return one with a daemon that listens."""
    found = Reporting(folder)
    await found.daemon.start()
    yield found
    found.reports._connection.close()
    await found.daemon.stop()


async def test_without_readings_the_report_is_repeated(told: Reporting) -> None:
    """A source whose readings stop makes no news, and the daemon must not take the report for outdated."""
    async with running(told.reports.run()):
        reports = await told.daemon.until_said("device-usage", 3)

    assert [each["classes"] for each in reports] == [[{"kind": "npu", "source": "file"}]] * len(reports)


async def test_what_has_not_changed_is_not_told_again(told: Reporting) -> None:
    """Until it is old; a change is told with the next report."""
    told.reports.repeat_s = 3600.0
    for use in (USE, USE, ClassUse(kind="npu", source="command")):
        told.uses[:] = [use]
        await told.reports.report()
    reports = await told.daemon.until_said("device-usage", 2)

    assert [each["classes"][0]["source"] for each in reports] == ["file", "command"]


async def test_a_daemon_that_is_absent(folder: Path) -> None:
    """Who watches nothing needs none, and does not complain; a first report that fails is told when it is there."""
    absent = Reporting(folder)
    absent.uses.clear()
    await absent.reports.report()
    assert absent.log.lines == []

    absent.uses.append(USE)
    absent.reports.soon()
    async with running(absent.reports.run()):
        await absent.log.until(lambda: "no daemon answers" in str(absent.log.lines))
        await absent.daemon.start()
        await absent.daemon.until_said("device-usage")
    await absent.daemon.stop()
