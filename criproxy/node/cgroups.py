"""What a container has applied: read from its cgroup, which is found through the pid that the runtime reports.

If the runtime's containers are not on this machine (the embedded one), or it reports no pid, its ContainerStatus is
used instead.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient, if_reported
from criproxy.cri.stamp import ANNOTATION, in_spec
from criproxy.errors import StatusCode
from criproxy.host.cgroup import ContainerGroup, find_group, group_at, has_processes
from criproxy.host.patience import Hangs, Patience
from criproxy.model.attributes import STORED, Attribute
from criproxy.model.grant import Applied
from criproxy.model.workload import ContainerState
from criproxy.node.in_flight import InFlight
from criproxy.process.tasks import batches

LEFT_RUNNING = (
    "the runtime has lost track of a container that is still running, and no longer moves it: "
    "restart the runtime, and delete the pod"
)
"""containerd 1.6 reports it as exited and never removes it; after a restart, as unknown, and can remove it."""
_LOST = frozenset({ContainerState.EXITED, ContainerState.UNKNOWN})
"""States that the runtime reports for containers whose processes it has lost, among others."""
_READ_S = 0.5
"""How long `is_populated` waits for the kernel."""
AT_ONCE = 16
"""Containers about which the runtime is asked concurrently."""

Attributes = tuple[Attribute[Any], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a container as it was read."""

    state: ContainerState | None
    """None: the runtime does not know the container."""
    applied: Applied | None = None
    """What it has, if it runs, or what it starts with, if nobody moves it before; None: that cannot be read."""

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.state in (None, ContainerState.EXITED)


Answer = tuple[Seen, api.ContainerStatusResponse | None]
"""See `Cgroups.ask`."""


@dataclass
class Cgroups:
    """Reads containers, and remembers where their cgroups are."""

    runtime: RuntimeClient
    host_root: Path
    in_flight: InFlight = field(default_factory=InFlight)
    """Notified of processes that the runtime has lost."""
    moves_created: bool = True
    """See `Settings`: if not, a created container has what its create gave it."""
    groups: dict[str, ContainerGroup] = field(default_factory=dict)
    """The known cgroups, by container id; other parts may read them."""
    unreported: dict[str, str] = field(default_factory=dict)
    """By container id: why the runtime, although it answers other calls, does not report the state of the container."""
    lost: dict[str, float] = field(default_factory=dict)
    """Containers that run as the runtime says, but whose cgroup has gone; since when, on the monotonic clock."""
    fights: dict[str, float] = field(default_factory=dict)
    """Containers whose cpuset another program changes again and again, and until when that counts, on that clock."""
    placed_twice: tuple[int, str] = (0, "")
    """The newest container that both a criproxy before the runtime and one that is its plugin have placed: when it was
    created, in nanoseconds since the epoch, and its id. Empty if a newer one was placed by one of them."""
    begun_ns: int = field(default_factory=time_ns)
    """Containers from before may have been placed by another one that does not run any more."""
    _patience: Patience = field(default_factory=Patience)

    async def read(self, container_id: str, attributes: Attributes = STORED) -> Seen:
        """Return the state of a container, and its *attributes*.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        if (group := self.groups.get(container_id)) and (seen := _read(group, attributes)):
            self.unreported.pop(container_id, None)
            return seen
        return (await self.ask(container_id, attributes))[0]  # if it is gone, it has ended, or is about to

    async def ask_each(self, keys: Sequence[str]) -> AsyncIterator[tuple[str, Answer]]:
        """Yield each of the containers *keys* with what `ask` returns, except those that the runtime does not report.

        Raises:
            RuntimeCallError: the runtime is away.
        """
        for some in batches(keys, AT_ONCE):
            answers = await asyncio.gather(*(self.reported(key) for key in some))
            for key, answer in zip(some, answers, strict=True):
                if answer:
                    yield key, answer

    async def reported(self, key: str) -> Answer | None:
        """Return what `ask` returns; None if the runtime does not report that container.

        Raises:
            RuntimeCallError: the runtime is away.
        """
        # The inner coroutine is made only here: if `gather` cancelled it before its first step, nobody would await it.
        return await if_reported(self.ask(key))

    async def ask(self, container_id: str, attributes: Attributes = STORED) -> Answer:
        """Return the same from the runtime's status, together with that status; None: it does not know the container.

        A container that it does not know runs as long as its known cgroup has processes.

        Raises:
            RuntimeCallError: the runtime does not answer, or its answer cannot be read.
        """
        try:
            reply = await self.runtime.container_status(container_id, verbose=True)
        except RuntimeCallError as error:
            if not error.not_found:
                if not error.is_away:
                    self.unreported[container_id] = str(error)
                raise
            reply = None
        left = self.groups.get(container_id) if reply is None and await self.is_populated(container_id) else None
        had = container_id in self.groups
        self.forget(container_id)
        try:
            if reply is None:
                seen = self._left(container_id, left, attributes)
            else:
                seen = self._seen(container_id, reply, attributes)
        except Exception as error:  # an unreadable status of one container must not affect others
            text = "criproxy cannot read what the runtime reports about it"
            self.unreported[container_id] = f"{text}: {error!r}"
            raise RuntimeCallError("ContainerStatus", StatusCode.INTERNAL, text) from error
        self.unreported.pop(container_id, None)
        if reply is not None:
            self._look_for_another(container_id, reply)
        if seen.ended or container_id in self.groups:
            self.lost.pop(container_id, None)
        elif had:
            self.lost.setdefault(container_id, monotonic())
        return seen, reply

    def _look_for_another(self, container_id: str, reply: api.ContainerStatusResponse) -> None:
        created_ns = reply.status.created_at
        if ANNOTATION in reply.status.annotations and created_ns >= max(self.begun_ns, self.placed_twice[0]):
            is_twice = in_spec(container_id)[ANNOTATION] in reply.info.get("info", "")
            self.placed_twice = (created_ns, container_id) if is_twice else (0, "")

    def _seen(self, container_id: str, reply: api.ContainerStatusResponse, attributes: Attributes) -> Seen:
        state, group = translate.state(reply.status), None
        if state is ContainerState.RUNNING and (pid := translate.pid_in(reply.info)):
            with suppress(OSError, LookupError):
                group = find_group(self.host_root, pid, container_id)
        elif state in _LOST:
            own = group_at(self.host_root, translate.cgroup_in(reply.info))
            group = own if own and has_processes(own) else None
        seen = _read(group, attributes) if group else None
        is_left = group and seen and state in _LOST
        self.in_flight.set_left(container_id, partial(has_processes, group) if group and is_left else None)
        if group and seen:
            self.groups[container_id] = group
            return seen
        if state is ContainerState.RUNNING:
            return Seen(state, translate.applied(reply.status))
        if state is ContainerState.CREATED and not self.moves_created:
            return Seen(state, translate.applied_at_start(reply))
        return Seen(state)

    def _left(self, container_id: str, group: ContainerGroup | None, attributes: Attributes) -> Seen:
        """Return the state of a container that the runtime does not know; its processes run in *group*, if given."""
        seen = _read(group, attributes) if group else None
        if group is None or seen is None:
            return Seen(None)
        self.groups[container_id] = group
        self.in_flight.set_left(container_id, partial(has_processes, group))
        return seen

    async def is_populated(self, container_id: str) -> bool | None:
        """Whether a container has processes; None if its cgroup is not known, or is not read in time."""
        if (group := self.groups.get(container_id)) is None:
            return None
        try:
            return await self._patience.wait(group.path, partial(has_processes, group), _READ_S)
        except Hangs:
            return None

    def forget(self, container_id: str) -> None:
        """Forget where the cgroup of that container is; the next read finds it again."""
        self.groups.pop(container_id, None)

    def keep(self, known: AbstractSet[str]) -> None:
        """Forget all containers but these."""
        by_ids: tuple[dict[str, Any], ...] = (self.groups, self.unreported, self.lost, self.fights)
        for by_id in by_ids:
            for container_id in by_id.keys() - known:
                del by_id[container_id]


def _read(group: ContainerGroup, attributes: Attributes) -> Seen | None:
    """Return a running container as its cgroup shows it; None if the cgroup is gone."""
    try:
        return Seen(ContainerState.RUNNING, group.read(attributes))
    except OSError:
        return None
