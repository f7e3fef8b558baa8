"""Joins what the daemon says and what the machine's files say to what `criproxy top` shows."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from criproxy.api.views.top.events import MAX_EVENTS, Event, earlier, later
from criproxy.api.views.top.machine import Block, Owners, blocks_of, blocks_of_nodes, owners_of
from criproxy.api.views.top.rates import Rates, Reading, rates
from criproxy.api.views.top.scene import Scene
from criproxy.api.views.top.snapshot import Snapshot
from criproxy.cli.screen.asker import Told
from criproxy.errors import CriproxyError
from criproxy.host.container_use import ContainerCgroups
from criproxy.host.cpu_times import read_cpu_times, read_memory_use
from criproxy.host.machine import discover
from criproxy.model.text.bounded import bounded, printable


class Scenes:
    """Remembers the last reading, the events, and which mark each container has."""

    def __init__(self, host_root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._host_root, self._clock = host_root, clock
        self._cgroups = ContainerCgroups(host_root)
        self._reading: Reading | None = None
        self._rates = Rates()
        self._status: Snapshot | None = None
        self._owners = Owners()
        self._events: list[Event] = []
        self._machine: tuple[frozenset[int], list[Block]] = (frozenset(), [])
        self._host = printable(os.uname().nodename)

    def read(self, told: Told) -> None:
        """Read the machine's counters: what was used since the last time is what is shown from now on."""
        rows = told.status.rows if told.status else ()
        ids = [row.id for row in rows if row.is_alive]
        reading = Reading(
            self._clock(), read_cpu_times(self._host_root), self._cgroups.read(ids), read_memory_use(self._host_root)
        )
        before, self._reading = self._reading, reading
        self._rates = rates(before or reading, reading)

    def scene(self, told: Told) -> Scene:
        """What is known now."""
        if told.status is not None and told.status is not self._status:
            self._take_in(told.status)
        at_s = time.time()
        return Scene(
            host=self._host,
            at_s=at_s,
            clock=time.strftime("%H:%M:%S", time.localtime(at_s)),
            told=told.status,
            problem=bounded(told.problem),
            rates=self._rates,
            blocks=self._blocks(self._reading.cpus if self._reading else (), told.status),
            owners=self._owners,
            cards=told.cards,
            events=self._events,
        )

    def _take_in(self, status: Snapshot) -> None:
        events = later(self._status, status) if self._status else earlier(status)
        self._events = [*self._events, *events][-MAX_EVENTS:]
        self._owners = owners_of(status, self._owners.marks)
        self._status = status

    def _blocks(self, online: Iterable[int], status: Snapshot | None) -> list[Block]:
        """The machine, read again when CPUs have come or gone."""
        cpus = frozenset(online)
        if not self._machine[1] or self._machine[0] != cpus:
            try:
                self._machine = (cpus, blocks_of(discover(self._host_root)))
            except CriproxyError:
                self._machine = (cpus, [])
        return self._machine[1] or blocks_of_nodes(status.nodes if status else {})
