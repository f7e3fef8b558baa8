"""How long containers with a class of CPUs were throttled: with their CPU limit in force, and without it.

The kernel counts for the whole life of a cgroup. What it had counted is read when a container starts or is found, and
whenever its quota has been lifted or restored; so the daemon knows it since it started, or the container.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic, time

from criproxy.cri.runtime import RuntimeCallError
from criproxy.host.container_use import PodLimit, Throttling, read_pod_limit, read_throttling
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.node import changed_keys
from criproxy.model.workload import Container, ContainerState
from criproxy.node.context import Context

_AT_ONCE = 25
"""Containers that are tried again with each look."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the time in which a container was observed."""

    seconds: float = 0.0
    throttled_us: int | None = 0
    """None: unknown."""

    def plus(self, seconds: float, before: Throttling | None, after: Throttling | None) -> "Share":
        """Return both together: *seconds* more, at the ends of which the kernel had counted this."""
        if before is None or after is None or self.throttled_us is None:
            return Share(self.seconds + seconds, None)
        return Share(self.seconds + seconds, self.throttled_us + after.throttled_us - before.throttled_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """How a container was throttled."""

    since_s: float
    """Since when it is observed, in seconds since the epoch."""
    lifted: bool
    """Whether its quota is lifted now."""
    shares: Mapping[bool, Share]
    """The time in which it was lifted, and the rest."""
    now: Throttling | None
    """What the kernel has counted since the container started; None: unknown."""
    pod: PodLimit | None
    """The limit of its pod; None: unknown."""


@dataclass(slots=True)
class _Watch:
    """A container that runs."""

    lifted: bool
    at: Throttling | None
    """What the kernel had counted when that began."""
    restoring: Throttling | None = None
    """What it had counted when a lifted quota was to be restored: the rest is due to the quota, which the kernel
    enforces before the runtime has answered."""
    since_s: float = field(default_factory=monotonic)
    """When it began."""
    began_s: float = field(default_factory=time)
    """Since when it is observed, in seconds since the epoch."""
    shares: dict[bool, Share] = field(default_factory=lambda: {True: Share(), False: Share()})

    def now(self, counted: Throttling | None) -> dict[bool, Share]:
        """Return the shares up to now; the kernel has *counted* this."""
        more = self.shares[self.lifted].plus(monotonic() - self.since_s, self.at, self.restoring or counted)
        return {**self.shares, self.lifted: more}


@dataclass(slots=True)
class ThrottleWatch:
    """Observes the containers of a node."""

    context: Context
    _watches: dict[str, _Watch] = field(default_factory=dict)
    _unread: dict[str, None] = field(default_factory=dict)
    """Those that were found running, and whose cgroup was not known yet: they are observed from when it is."""
    _containers: Mapping[str, Container] = field(default_factory=dict)
    _grants: Mapping[str, Grant] = field(default_factory=dict)
    _applied: Mapping[str, Applied] = field(default_factory=dict)

    def look(self) -> None:
        """Follow changes of the node, at a cost that depends only on what has changed."""
        node, containers = self.context.state.node, self._containers
        keys = {*changed_keys(containers, node.containers), *changed_keys(self._applied, node.applied)}
        for key in keys | {*changed_keys(self._grants, node.grants)}:
            container, grant, applied = node.containers.get(key), node.grants.get(key), node.applied.get(key)
            if container is None or container.state is ContainerState.EXITED:
                self._watches.pop(key, None)
            elif container.state is not ContainerState.RUNNING or applied is None or applied.lifted is None:
                continue
            elif watch := self._watches.get(key):
                if watch.lifted is not applied.lifted:
                    watch.shares = watch.now(counted := watch.restoring or self._read(key))
                    watch.lifted, watch.at, watch.since_s, watch.restoring = applied.lifted, counted, monotonic(), None
                elif watch.lifted:
                    stays = grant is not None and grant.quota is CpuQuota.LIFTED
                    watch.restoring = None if stays else watch.restoring or self._read(key)
            elif grant and grant.controls.class_of("cpu") and container.asked_quota:
                is_new = key in containers and containers[key].state is ContainerState.CREATED
                self._watches[key] = watch = _Watch(applied.lifted, Throttling() if is_new else self._read(key))
                if watch.at is None:
                    self._unread[key] = None
        for key in [*islice(self._unread, _AT_ONCE)]:
            self._begin_again(key)
        self._containers, self._grants, self._applied = node.containers, node.grants, node.applied

    def _begin_again(self, key: str) -> None:
        """Observe *key* from now on if its cgroup is known now; if not, it is the last one to be tried again."""
        del self._unread[key]
        if (watch := self._watches.get(key)) is None:
            return
        if counted := self._read(key):
            self._watches[key] = _Watch(watch.lifted, counted)
        else:
            self._unread[key] = None

    async def of(self, key: str) -> Observed | None:
        """Return how the container *key* was throttled; None if it is not observed."""
        if key not in self._watches:
            return None
        cgroups = self.context.cgroups
        if key not in cgroups.groups:
            with suppress(RuntimeCallError):  # then it is unknown
                await cgroups.read(key)
        if key in self._unread:
            self._begin_again(key)
        if (watch := self._watches.get(key)) is None:  # it has ended meanwhile
            return None
        group, counted = cgroups.groups.get(key), self._read(key)
        pod = read_pod_limit(group) if group else None
        return Observed(since_s=watch.began_s, lifted=watch.lifted, shares=watch.now(counted), now=counted, pod=pod)

    def _read(self, key: str) -> Throttling | None:
        group = self.context.cgroups.groups.get(key)
        return read_throttling(group) if group else None
