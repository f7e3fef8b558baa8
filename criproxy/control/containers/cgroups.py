"""What a container really has: read from its cgroup, which is found through the pid that the runtime reports.

A runtime whose containers are not on this machine (the embedded one), or that reports no pid, is believed through
ContainerStatus.
"""

from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.control.containers.in_flight import InFlight
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.discovery.container_cgroup import CpusetGroup, find_group, group_at, has_processes
from criproxy.errors import StatusCode
from criproxy.model.grant import Applied
from criproxy.model.workload import ContainerState

LEFT_RUNNING = (
    "the runtime has lost a container that still runs, and no longer moves it: restart the runtime, and remove the pod"
)
"""containerd 1.6 calls it exited and removes it never; after a restart it calls its state unknown, and does."""
_LOST = frozenset({ContainerState.EXITED, ContainerState.UNKNOWN})
"""What the runtime calls containers of which it has lost the processes, among others."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of a container."""

    state: ContainerState | None
    """None: the runtime does not know it."""
    applied: Applied | None = None
    """Its sets, where it runs and they can be read."""
    lifted: bool | None = None
    """Whether it runs without a CFS quota, as one without a CPU limit does; None where that cannot be read."""

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.state in (None, ContainerState.EXITED)


@dataclass
class Cgroups:
    """Reads containers; remembers where their cgroups are."""

    runtime: RuntimeClient
    host_root: Path
    in_flight: InFlight = field(default_factory=InFlight)
    """Notified of processes that the runtime has lost."""
    groups: dict[str, CpusetGroup] = field(default_factory=dict)
    """The cgroups that are known, by container id; for others to read."""
    unreported: dict[str, str] = field(default_factory=dict)
    """By container id: why the runtime, which answers otherwise, does not report how that one is."""

    async def read(self, container_id: str) -> Seen:
        """State and sets of a container.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        if (group := self.groups.get(container_id)) and (seen := _read(group)):
            self.unreported.pop(container_id, None)
            return seen
        return (await self.ask(container_id))[0]  # if it is gone, the container has ended, or is about to

    async def ask(self, container_id: str) -> tuple[Seen, api.ContainerStatusResponse | None]:
        """The same by the runtime's own words, which come along; None: it does not know the container.

        Raises:
            RuntimeCallError: if the runtime cannot be asked, or what it says cannot be read.
        """
        try:
            reply = await self.runtime.container_status(container_id, verbose=True)
        except RuntimeCallError as error:
            if not error.not_found:
                if not error.is_away:
                    self.unreported[container_id] = str(error)
                raise
            reply = None
        self.forget(container_id)
        try:
            seen = Seen(None) if reply is None else self._seen(container_id, reply)
        except Exception as error:  # what this one says keeps no other from being asked
            text = "criproxy cannot read what the runtime reports about it"
            self.unreported[container_id] = f"{text}: {error!r}"
            raise RuntimeCallError("ContainerStatus", StatusCode.INTERNAL, text) from error
        self.unreported.pop(container_id, None)
        return seen, reply

    def _seen(self, container_id: str, reply: api.ContainerStatusResponse) -> Seen:
        state, group = translate.state(reply.status), None
        if state is ContainerState.RUNNING and (pid := translate.pid_in(reply.info)):
            with suppress(OSError, LookupError):
                group = find_group(self.host_root, pid, container_id)
        elif state in _LOST:
            own = group_at(self.host_root, translate.cgroup_in(reply.info))
            group = own if own and has_processes(own) else None
        seen = _read(group) if group else None
        self.in_flight.leave(container_id, partial(has_processes, group) if group and seen and state in _LOST else None)
        if group and seen:
            self.groups[container_id] = group
            return seen
        if state is ContainerState.RUNNING:
            return Seen(state, translate.sets(reply.status), translate.lifted(reply.status))
        return Seen(state)

    def forget(self, container_id: str) -> None:
        """Find the cgroup of that container anew, should it be asked for again."""
        self.groups.pop(container_id, None)

    def keep(self, known: AbstractSet[str]) -> None:
        """Forget all containers but these."""
        for by_id in (self.groups, self.unreported):
            for container_id in by_id.keys() - known:
                del by_id[container_id]


def _read(group: CpusetGroup) -> Seen | None:
    """A running container by its cgroup; None if that is gone."""
    try:
        return Seen(ContainerState.RUNNING, group.read(), group.lifted())
    except OSError:
        return None
