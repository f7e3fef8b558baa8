"""Tells the daemon that the device plugin begins, and that it was told to end: silence in between is a problem."""

from contextlib import suppress

from criproxy.deviceplugin.daemon_client.asking import DaemonRefuses, NoDaemon, report
from criproxy.process.ending import in_full

COMMAND = "device-plugin"


async def say_running(socket: str, instance: str, *, running: bool, refused: str = "") -> None:
    """Tell the daemon on *socket* whether the device plugin runs from now on; *instance* as in `Published`.

    *refused* says why a device plugin that should run ends at its start. Older daemons ignore it, and miss reports.

    This is not repeated: a daemon that is absent learns from the reports that the device plugin runs, and one that
    does not answer, or does not know the command, keeps what it knows. A cancellation waits for the answer, so that a
    daemon is told in the right order.
    """
    arguments = {"running": running, "instance": instance} | ({"refused": refused} if refused else {})
    with suppress(NoDaemon, DaemonRefuses):
        await in_full(report(socket, COMMAND, arguments), None)
