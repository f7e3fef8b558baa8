"""Reports of use to a daemon: told again from time to time though there is no news, and after a failure."""

from pathlib import Path

from criproxy.deviceplugin.daemon_client.daemon_client import DaemonClient
from criproxy.deviceplugin.usage.watcher import UsageReports
from criproxy.devices.usage.values import ClassUse
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.news import running
from tests.deviceplugin.node import Log

USE = (ClassUse(kind="npu", source="file"),)


async def test_without_readings_the_report_is_repeated(folder: Path) -> None:
    """A source whose readings stop makes no news, and the daemon must not take the report for outdated."""
    daemon, log = Daemon(folder / "control.sock"), Log()
    reports = UsageReports(DaemonClient(str(folder / "control.sock"), log), lambda: USE, period_s=0.01, repeat_s=0.02)
    await daemon.start()
    async with running(reports.run()):
        told = await daemon.until_said("device-usage", 3)
    await daemon.stop()

    assert [each["classes"] for each in told] == [[{"kind": "npu", "source": "file"}]] * len(told)


async def test_what_has_not_changed_is_not_told_again(folder: Path) -> None:
    """Until it is old; a change is told with the next report."""
    daemon, uses = Daemon(folder / "control.sock"), list(USE)
    client = DaemonClient(str(folder / "control.sock"), Log())
    reports = UsageReports(client, lambda: tuple(uses), repeat_s=3600.0)
    await daemon.start()
    for use in (*USE, *USE, ClassUse(kind="npu", source="command")):
        uses[:] = [use]
        await reports.report()
    told = await daemon.until_said("device-usage", 2)
    reports._connection.close()
    await daemon.stop()

    assert [each["classes"][0]["source"] for each in told] == ["file", "command"]


async def test_who_watches_nothing_reports_nothing(folder: Path) -> None:
    """A device plugin without sources of usage data needs no daemon, and does not complain that there is none."""
    uses, log = list[ClassUse](), Log()
    asked = DaemonClient(str(folder / "control.sock"), log)
    reports = UsageReports(asked, lambda: tuple(uses), period_s=0.01, repeat_s=0.02)
    await reports.report()
    assert log.lines == []

    uses.append(*USE)
    await reports.report()
    assert "no daemon answers" in str(log.lines)


async def test_a_first_report_that_fails_is_told_again(folder: Path) -> None:
    """The daemon may start after the watcher, whose readings may have come by then."""
    daemon, log = Daemon(folder / "control.sock"), Log()
    reports = UsageReports(DaemonClient(str(folder / "control.sock"), log), lambda: USE, period_s=0.01, repeat_s=0.02)
    reports.soon()
    async with running(reports.run()):
        await log.until(lambda: "no daemon answers" in str(log.lines))
        await daemon.start()
        (told, *_) = await daemon.until_said("device-usage")
    await daemon.stop()

    assert told["classes"] == [{"kind": "npu", "source": "file"}]
