"""Reports containers over their quota to the daemon, and kills a process where the daemon says so.

The daemon stores an incident before anything happens to a container. What it does not take now is reported again, but
an incident that is over by then, and of which it cannot have heard, is not.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.observe.asking import DaemonRefuses, NoDaemon
from criproxy.observe.logger import Log
from criproxy.usage.quota import Key, Over, Within
from criproxy.usage.values import Process
from criproxy.watcher.daemon import Daemon
from criproxy.watcher.grants import OpenIncident
from criproxy.watcher.killing import kill
from criproxy.watcher.processes import Processes

RETRY_S = 1.0
"""Before the daemon is told again what it did not take."""
MOST_PENDING = 4096
COMMAND = "quota-incident"
KILL = "kill-process"


@dataclass(slots=True)
class _Pending:
    """What the daemon has still to be told of a quota."""

    arguments: Mapping[str, Any]
    target: Process | None = None
    """What to kill if the daemon says so."""
    tried: bool = False
    """Whether the daemon may have heard of the incident."""
    unanswered: bool = False
    """Whether it may have stored it, and nothing was done: its answer was lost, or the watcher was restarted."""
    resumed: bool = False
    """Whether it is from before a restart, so that its process may have been killed then."""


@dataclass(slots=True, repr=False)
class QuotaIncidents:
    """What is told of quotas.

    Args:
        daemon: is told.
        processes: are compared before one of them is killed.
        log: has each incident, and each kill.
        stop_timeout_s: how long a container that is stopped has to end by itself.
    """

    daemon: Daemon
    processes: Processes
    log: Log
    stop_timeout_s: float = 10.0
    retry_s: float = RETRY_S
    kills: int = 0
    """How many processes were killed."""
    kills_failed: int = 0
    _pending: dict[Key, _Pending] = field(default_factory=dict)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pending(self) -> int:
        """Quotas of which the daemon has still to be told."""
        return len(self._pending)

    def over(self, over: Over) -> None:
        """A container is over its quota."""
        self.log.warning("a container is over its quota", **_shown(over))
        target = over.largest if over.action == KILL else None
        self._add(over.key, _Pending(_arguments(over, self.stop_timeout_s), target))

    def within(self, within: Within, kind: str) -> None:
        """A container that was over its quota is within it again, or it is gone."""
        key = within.key
        self.log.info(
            "a container is within its quota again", container_id=key.container_id, card=key.card, quantity=key.quantity
        )
        before = self._pending.get(key)
        if before is not None and not before.tried:
            del self._pending[key]
            return
        self._add(key, _Pending({**_named(key, kind), "over": False}))

    def finish(self, key: Key, incident: OpenIncident) -> None:
        """Kill what was to be killed before a restart, if it is there still; the daemon has to know when that is.

        A process that is gone is not replaced by another one.
        """
        if key not in self._pending:
            said = _resumed(incident, self.stop_timeout_s)
            self._add(key, _Pending(said, incident.target, tried=True, unanswered=True, resumed=True))

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
        """Report for ever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not await self._tell_all():
                self._wanted.set()
                await asyncio.sleep(self.retry_s)

    def _add(self, key: Key, pending: _Pending) -> None:
        self._pending.pop(key, None)
        if len(self._pending) >= MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        self._pending[key] = pending
        self._wanted.set()

    async def _tell_all(self) -> bool:
        """Whether the daemon has taken all there is."""
        is_all = True
        for key, pending in [*self._pending.items()]:
            if self._pending.get(key) is not pending:
                continue
            pending.tried = True
            if pending.resumed and not await self._is_left(key, pending):
                continue
            try:
                is_taken, act = await self._tell(pending)
            except NoDaemon:
                pending.unanswered = True
                return False
            if not is_taken:
                is_all = False
            elif self._pending.get(key) is pending:  # else it is within its quota meanwhile, and nothing may happen
                del self._pending[key]
                if act and pending.target is not None:
                    await self._kill(key, pending.target)
        return is_all

    async def _tell(self, pending: _Pending) -> tuple[bool, bool]:
        """Whether the daemon needs no more of it, and whether to act.

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
        """Whether the process of an incident from before a restart is still there; else that incident is done."""
        target = pending.target
        if target is not None and await asyncio.to_thread(self.processes.is_same, target, key.container_id):
            return True
        if self._pending.get(key) is pending:
            del self._pending[key]
        return False

    async def _kill(self, key: Key, target: Process) -> None:
        found = await asyncio.to_thread(kill, self.processes, target, key.container_id)
        about = {"container_id": key.container_id, "card": key.card, "process": target.pid}
        if found.done:
            self.kills += 1
            self.log.warning("killed the process that used the most", **about)
        elif found.is_gone:
            self.log.info("the process that used the most had already exited", **about)
        else:
            self.kills_failed += 1
            self.log.warning("could not kill the process that uses the most", **about, reason=found.reason)


def _is(answer: Any, name: str) -> bool:  # noqa: ANN401 - JSON
    return isinstance(answer, dict) and answer.get(name) is True


def _named(key: Key, kind: str) -> dict[str, Any]:
    return {
        "container_id": key.container_id,
        "device_class": kind,
        "card": key.card,
        "quantity": key.quantity,
    }


def _arguments(over: Over, stop_timeout_s: float) -> dict[str, Any]:
    said = {
        **_named(over.key, over.kind),
        "over": True,
        "used": round(over.used, 1),
        "allowed": over.allowed,
        "since_s": time.time() - (time.monotonic() - over.over_since_s),
        "action": over.action,
        "stop_timeout_s": stop_timeout_s,
    }
    if over.action == KILL and over.largest is not None:
        said |= {"pid": over.largest.pid, "start_ticks": over.largest.start_ticks}
    return said


def _resumed(incident: OpenIncident, stop_timeout_s: float) -> dict[str, Any]:
    """The arguments for what the daemon knows already, with the amounts as it has rounded them."""
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


def _shown(over: Over) -> dict[str, Any]:
    unit = "MiB" if over.key.quantity == "memory" else "% of the cores"
    return {
        "container_id": over.key.container_id,
        "class": over.kind,
        "card": over.key.card,
        "used": f"{over.used:.0f} {unit}",
        "allowed": f"{over.allowed} {unit}",
        "action": over.action,
    }
