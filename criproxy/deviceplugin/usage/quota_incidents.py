"""Reports containers over their quota to the daemon, and kills a process if the daemon's answer requests it.

The daemon stores an incident before anything happens to a container. A report that the daemon does not accept is sent
again. But an incident that has ended before the daemon can have received its report is not reported at all.

A process is killed only if it is still the same one: never another one that has got the same PID meanwhile.
"""

import asyncio
import errno
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import DaemonClient, PendingReports
from criproxy.deviceplugin.usage.grants_client import OpenIncident
from criproxy.deviceplugin.usage.processes import Processes
from criproxy.deviceplugin.usage.quota_verdicts import Key, Over, Within
from criproxy.devices.usage.values import Process
from criproxy.process.control_client import DaemonRefuses, NoDaemon
from criproxy.process.logger import Log

FIRST_PID = 2
"""PID 1 is init, and 0 means a process group."""
_NO_PIDFD = (errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""Errors of a kernel without pidfds, of a seccomp filter, or if no file can be opened: then only the PID is used,
which leaves a moment in which it may become that of another process."""
_CAP_KILL = 1 << 5
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)
RETRY_S = 1.0
"""The pause before reports that the daemon did not accept are sent again."""
MOST_PENDING = 4096
COMMAND = "quota-incident"
KILL = "kill-process"
GONE = "it has exited"


def kill(processes: Processes, process: Process, container_id: str) -> str:
    """Send SIGKILL to *process* if it is still the same process in the same container.

    Returns:
        Why it was not killed; empty if it was. `GONE`: it had already exited.
    """
    if process.pid < FIRST_PID or process.pid == os.getpid():
        return f"process {process.pid} must not be killed"
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno not in _NO_PIDFD:
            return GONE
        return _send(processes, process, container_id, None)
    try:  # from here on, no other process that gets the PID can get the signal
        return _send(processes, process, container_id, descriptor)
    finally:
        os.close(descriptor)


def _send(processes: Processes, process: Process, container_id: str, descriptor: int | None) -> str:
    if not processes.is_same(process, container_id):
        return GONE
    try:
        if descriptor is None:
            os.kill(process.pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return GONE
    except OSError as error:
        hint = "; its unit needs CAP_KILL" if error.errno == errno.EPERM else ""
        return f"{error.strerror}{hint}"
    return ""


def may_kill() -> bool:
    """Whether this process may send signals to processes of other users."""
    found = _EFFECTIVE.search(Path("/proc/self/status").read_text(errors="replace"))
    return found is not None and bool(int(found[1], 16) & _CAP_KILL)


@dataclass(slots=True)
class _Pending:
    """A report about one quota that the daemon has not accepted yet."""

    arguments: Mapping[str, Any]
    target: Process | None = None
    """The process to kill if the daemon's answer requests it."""
    tried: bool = False
    """Whether the daemon may have received the report."""
    unanswered: bool = False
    """Whether the daemon may have stored the incident and nothing was done about it, because its answer was lost or the
    watcher was restarted."""
    resumed: bool = False
    """Whether the incident is from before a restart, so that its process may have been killed then."""


@dataclass(slots=True, repr=False)
class QuotaIncidents:
    """Reports the incidents, each until the daemon has accepted the report.

    Args:
        daemon: stores the incidents and decides what happens.
        processes: finds out whether a process is still the one to kill.
        log: gets each incident, and each kill.
        stop_timeout_s: how long a container has between SIGTERM and SIGKILL when it is stopped.
    """

    daemon: DaemonClient
    processes: Processes
    log: Log
    stop_timeout_s: float = 10.0
    retry_s: float = RETRY_S
    kills: int = 0
    """How many processes were killed."""
    kills_failed: int = 0
    _pending: PendingReports[Key, _Pending] = field(default_factory=lambda: PendingReports(MOST_PENDING))
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pending(self) -> int:
        """How many quotas have a report that the daemon has not accepted yet."""
        return len(self._pending)

    def over(self, over: Over) -> None:
        """Report a container that is over its quota."""
        event = "a container is over its quota again and again" if over.repeated else "a container is over its quota"
        self.log.warning(event, **_log_keys(over))
        target = over.largest if over.action == KILL else None
        self._add(over.key, _Pending(_arguments(over, self.stop_timeout_s), target))

    def within(self, within: Within, kind: str) -> None:
        """Report a container that was over its quota and is within it again, or gone."""
        key = within.key
        self.log.info("a container is within its quota again", **key._asdict())
        before = self._pending.get(key)
        if before is not None and not before.tried:
            self._pending.remove(key, before)
            return
        self._add(key, _Pending({**_named(key, kind), "over": False}))

    def finish(self, incident: OpenIncident) -> None:
        """Kill the process that was to be killed before a restart, if it still runs.

        The daemon has to know when it is killed. If the process has exited, no other one is killed in its place.
        """
        if incident.key not in self._pending:
            arguments = _resumed(incident, self.stop_timeout_s)
            self._add(incident.key, _Pending(arguments, incident.target, tried=True, unanswered=True, resumed=True))

    def confirm(self, incident: OpenIncident, *, is_over: bool) -> None:
        """Say how it is now with an incident on which the daemon has not acted since its restart."""
        if incident.key in self._pending:
            return
        if is_over:
            said = _resumed(incident, self.stop_timeout_s) | {"action": incident.done}
            self._add(incident.key, _Pending(said, tried=True))
        else:
            self.within(Within(incident.key), incident.device_class)

    async def run(self) -> None:
        """Send reports whenever there are some, again after `retry_s` if the daemon has not accepted all of them."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not await self._report_all():
                self._wanted.set()
                await asyncio.sleep(self.retry_s)

    def _add(self, key: Key, pending: _Pending) -> None:
        self._pending.add(key, pending)
        self._wanted.set()

    async def _report_all(self) -> bool:
        """Send all reports; return whether the daemon has accepted them."""
        is_all = True
        for key, pending in [*self._pending.items()]:
            if self._pending.get(key) is not pending:
                continue
            pending.tried = True
            if pending.resumed and not await self._is_left(key, pending):
                continue
            try:
                is_accepted, act = await self._report(pending)
            except NoDaemon:
                pending.unanswered = True
                return False
            if not is_accepted:
                is_all = False
            # if the report was replaced meanwhile, the container is within its quota, and nothing may happen to it
            elif self._pending.remove(key, pending) and act and pending.target is not None:
                await self._kill(key, pending.target)
        return is_all

    async def _report(self, pending: _Pending) -> tuple[bool, bool]:
        """Send a report; return whether it need not be sent again, and whether to kill its target.

        Raises:
            NoDaemon: there is no answer.
        """
        unanswered = {"unanswered": True} if pending.unanswered else {}
        try:
            answer = await self.daemon.ask(COMMAND, {**pending.arguments, **unanswered})
        except DaemonRefuses as error:
            return error.wrong, False
        return _is(answer, "stored"), _is(answer, "act")

    async def _is_left(self, key: Key, pending: _Pending) -> bool:
        """Whether the process of an incident from before a restart still runs; if not, drop the report."""
        target = pending.target
        if target is not None and await asyncio.to_thread(self.processes.is_same, target, key.container_id):
            return True
        self._pending.remove(key, pending)
        return False

    async def _kill(self, key: Key, target: Process) -> None:
        failure = await asyncio.to_thread(kill, self.processes, target, key.container_id)
        keys = {"container_id": key.container_id, "card": key.card, "process": target.pid}
        if not failure:
            self.kills += 1
            self.log.warning("killed the process that used the most", **keys)
        elif failure == GONE:
            self.log.info("the process that used the most had already exited", **keys)
        else:
            self.kills_failed += 1
            self.log.warning("could not kill the process that uses the most", **keys, reason=failure)


def _is(answer: Any, name: str) -> bool:  # noqa: ANN401 - JSON
    return isinstance(answer, dict) and answer.get(name) is True


def _named(key: Key, kind: str) -> dict[str, Any]:
    return {**key._asdict(), "device_class": kind}


def _arguments(over: Over, stop_timeout_s: float) -> dict[str, Any]:
    arguments = {
        **_named(over.key, over.kind),
        "over": True,
        "used": round(over.used, 1),
        "allowed": over.allowed,
        "since_s": time.time() - (time.monotonic() - over.over_since_s),
        "action": over.action,
        "stop_timeout_s": stop_timeout_s,
    }
    if over.action == KILL and over.largest is not None:
        arguments |= {"pid": over.largest.pid, "start_ticks": over.largest.start_ticks}
    return arguments


def _resumed(incident: OpenIncident, stop_timeout_s: float) -> dict[str, Any]:
    """Return the arguments for an incident that the daemon has stored, with the amounts that it has rounded."""
    return {
        **_named(incident.key, incident.device_class),
        "over": True,
        "used": max(incident.used, incident.allowed + 1),
        "allowed": incident.allowed,
        "since_s": time.time(),
        "action": KILL,
        "stop_timeout_s": stop_timeout_s,
        "pid": incident.pid,
        "start_ticks": incident.start_ticks,
    }


def _log_keys(over: Over) -> dict[str, Any]:
    unit = "MiB" if over.key.quantity == "memory" else "% of the cores"
    return {
        "container_id": over.key.container_id,
        "class": over.kind,
        "card": over.key.card,
        "used": f"{over.used:.0f} {unit}",
        "allowed": f"{over.allowed} {unit}",
        "action": over.action,
    }
