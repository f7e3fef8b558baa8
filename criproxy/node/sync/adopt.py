"""Adopts containers that criproxy does not know: those that others started, and those of a store that was lost.

The requests of a container come from its stamp or the sizes in force, and its CPUs and memory from its cgroup. The
engine leaves it there; `placement.adoption` has the limits that others set. `resync` calls this with the lists.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from time import time

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError, if_reported
from criproxy.cri.stamp import pod_totals, read_missed, read_stamp
from criproxy.devices.boundary import Word
from criproxy.model.attributes import as_granted, in_place
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.model.workload import MAY_RUN, Container, ContainerState, Miss, Missed, Pod, QosClass
from criproxy.node.cgroups import AT_ONCE, Seen
from criproxy.node.context import Context
from criproxy.node.devices.guard import DeviceGuard, GuardResult
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.settings import Adopt
from criproxy.node.sync.unseen import POD_UID, PlacingSince
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerGone, Found, PlacesMissed, Present, Unclassified, UpdateApplied
from criproxy.process.tasks import batches

STAYS = "it has a card, but no device node for it: an update could take the card away, so it stays where it is"
Sandboxes = Sequence[api.PodSandbox]
Containers = Sequence[api.Container]
"""A list of the runtime, as are `Sandboxes`."""
IsTouched = Callable[..., bool]
"""Whether there was a call about any of these ids since the lists were requested."""
GRACE_S = 120.0
"""How long after the bypass a call may end: the kubelet's ``runtimeRequestTimeout``."""
KEPT = 64
"""Bypasses whose times are remembered."""


@dataclass(slots=True)
class BypassTimes:
    """The times of bypasses, in seconds since the epoch."""

    _times: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Begin and end of each; without an end, it goes on."""

    def begin(self) -> None:
        """Record that a bypass begins."""
        if not self._goes_on():
            self._times.append((time(), inf))

    def end(self) -> None:
        """Record that the bypass ends."""
        if self._goes_on():
            self._times.append((self._times.pop()[0], time()))

    def cover(self, at_s: float) -> bool:
        """Whether a container created at *at_s* may have been created during a bypass."""
        return any(since_s <= at_s <= until_s + GRACE_S for since_s, until_s in self._times)

    def _goes_on(self) -> bool:
        return bool(self._times) and self._times[-1][1] == inf


@dataclass(frozen=True, slots=True)
class _Seen:
    """One container as the runtime and the kernel show it."""

    item: api.Container
    present: Present
    parent: str
    """The cgroup of its pod; empty if unknown."""
    started_s: float
    """When it started, in seconds since the epoch; 0 if it has not."""


@dataclass(slots=True)
class Adoption:
    """Turns unknown containers of a list into events."""

    context: Context
    reconciler: Reconciler
    devices: DeviceGuard
    bypass_times: BypassTimes
    placing_since: PlacingSince
    _finding: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while `find_cards` runs."""

    async def adopt(
        self, sandboxes: Sandboxes, containers: Containers, is_touched: IsTouched, *, with_exited: bool = False
    ) -> Sequence[str]:
        """Adopt unknown sandboxes and containers, except those that were touched meanwhile.

        Args:
            sandboxes: a list of the runtime.
            containers: a list of the runtime.
            is_touched: see `IsTouched`.
            with_exited: whether to include containers that the list shows as exited, if their processes remain.

        Returns:
            The ids of the adopted containers.

        Raises:
            RuntimeCallError: the runtime does not answer; what has been adopted until then stays adopted.
        """
        self.placing_since.learn(containers)
        listed, adopted, ended = {item.id: item for item in sandboxes}, list[str](), set[str]()
        await self._release_lost(item for item in containers if not is_touched(item.id))
        until_s = asyncio.get_running_loop().time() + self.context.settings.device_limits.adoption_s
        # Those that are queried concurrently are adopted with one event, which occupies the loop for a few ms.
        for some in batches(self._unknown(containers, with_exited=with_exited), AT_ONCE):
            inspected = await asyncio.gather(*(self._inspect(item, until_s) for item in some))
            ended.update(item.id for item, each in zip(some, inspected, strict=True) if each is None)
            found = [each for each in inspected if each and not is_touched(each.item.id, each.item.pod_sandbox_id)]
            parents = {each.item.pod_sandbox_id: each.parent for each in found}
            pods = self._pods(listed, parents, pod_totals(each.item for each in found))
            await self._apply([each.present for each in found], pods)
            await self._mark_contested(found)
            adopted += [each.item.id for each in found]
        if left := [pod for pod in self._pods(listed, dict.fromkeys(listed, ""), {}) if not is_touched(pod.key)]:
            await self._apply([], left)
        if adopted:
            self._report(adopted)
        await self.placing_since.tell_ended(containers, ended)
        if with_exited:
            await self._classify(listed, containers)
        return adopted

    def all_known(self, containers: Containers) -> None:
        """Note that the list of all *containers* is worked off."""
        self.placing_since.seen(containers)

    async def _release_lost(self, containers: Iterable[api.Container]) -> None:
        """Release reservations of containers that the runtime has created without criproxy's answer.

        With NRI, it waits for 2 s only. It has one container of a name and attempt in a sandbox, so that no
        other comes with that answer, even if that one has ended.
        """
        waiting = [one for one in self.context.state.node.containers.values() if not one.has_id]
        if not waiting:
            return
        unstamped = [item for item in containers if read_stamp(item.annotations) is None]
        made = {(item.pod_sandbox_id, item.metadata.name, item.metadata.attempt) for item in unstamped}
        for one in waiting:
            if one.identity in made and not self.context.in_flight.is_creating(one.key):
                await self.context.state.apply(ContainerGone(one.key))

    async def _classify(self, listed: Mapping[str, api.PodSandbox], containers: Containers) -> None:
        """Let classes be looked up that a criproxy without classes, as before an upgrade, has not looked up.

        The runtime is asked about containers that have a class: which cgroup files has the kubelet set?
        """
        node, policy = self.context.state.node, self.context.state.policy
        keys = [item.id for item in containers if _may_lack_classes(node, item)]
        pods = dict.fromkeys(node.containers[key].pod for key in keys)
        found = {key: translate.found_pod(listed[key]).annotations for key in pods if key in listed}
        event = Unclassified({key: each for key, each in found.items() if each != node.pods[key].annotations})
        tried = step(node, replace(event, kubelet_files=dict.fromkeys(keys, ())), policy).node
        theirs = dict[str, tuple[str, ...]]()
        changing = [key for key in keys if tried.grants[key] != node.grants[key]]
        async for key, (_, reply) in self.context.cgroups.ask_each(changing):
            if reply:
                theirs[key] = tuple(file for file, _ in translate.set_files(reply))
        if event.annotations or theirs:
            await self.context.state.apply(replace(event, kubelet_files=theirs))

    async def find_cards(self, containers: Containers) -> None:
        """Find the cards of containers whose creates criproxy did not see; only one call runs at a time.

        A container that has a card without a device node stays where it is from now on. If the runtime does not answer,
        the next call asks it again.
        """
        if self._finding.locked():
            return
        async with self._finding:
            with suppress(RuntimeCallError):
                for item in await self.devices.unseen(containers):
                    await self._find_cards_of(item)

    async def _find_cards_of(self, item: api.Container) -> None:
        seen, reply = await self.context.cgroups.reported(item.id) or (Seen(None), None)
        container = self.context.state.node.containers.get(item.id)
        if reply is None or container is None or seen.ended:
            return
        found = await self.devices.found(item, reply.info)
        if found.stays and not container.stays:
            await self._apply([Present(replace(container, stays=True), seen.applied)], [])

    async def read_watched(self) -> None:
        """Read the cgroups of containers that are only watched, or released; raise RuntimeCallError."""
        node = self.context.state.node
        for key in node.applied.keys() - node.grants.keys():
            is_followed = node.released or node.is_watched(key)
            seen = await if_reported(self.context.cgroups.read(key)) if is_followed else None
            if seen and (has := seen.applied):
                await self.context.state.apply(UpdateApplied(key, as_granted(has, None)))

    def _unknown(self, containers: Containers, *, with_exited: bool) -> list[api.Container]:
        """Return the containers to inspect, and to adopt unless they have ended.

        Those for which others have to move come first, and later attempts before earlier ones.
        """
        node, settings = self.context.state.node, self.context.settings

        def is_unknown(item: api.Container) -> bool:
            if not with_exited and translate.state(item) is ContainerState.EXITED:
                return False
            if self.context.state.bypassed and read_stamp(item.annotations) is not None:
                return False  # the policy is not asked about exclusive CPUs: containers that criproxy placed wait
            known = node.containers.get(item.id)
            # A container that is only watched because of former settings is pinned if the settings require it now.
            return known is None or (settings.adopt is Adopt.PIN and node.is_watched(item.id) and not known.stays)

        return sorted(filter(is_unknown, containers), key=lambda item: (_rank(item), -item.metadata.attempt))

    async def _inspect(self, item: api.Container, until_s: float) -> _Seen | None:
        """Return None if the container is gone or has ended; if the runtime does not report it, use the list alone."""
        answer = await self.context.cgroups.reported(item.id)
        seen, reply = answer or (Seen(translate.state(item)), api.ContainerStatusResponse())
        if reply is None or seen.state in (None, ContainerState.EXITED):
            return None
        container = translate.listed(item)
        try:
            container = translate.found_container(item, reply, self.context.state.node.topology.capacity_bytes)
            container = await self._with_cards(container, item, reply, until_s)
        except Exception as error:  # noqa: BLE001 (the container is adopted without its requests, and does not block others)
            self.context.tasks.failed("background", f"find out what {container.title} ({item.id}) asked for", error)
        container = replace(container, state=seen.state)
        is_seen = container.state is ContainerState.RUNNING or not self.context.settings.moves_created
        has = seen.applied if is_seen else translate.applied(reply.status)
        theirs = container.kubelet_files
        files = tuple((file, value) for file, value in translate.set_files(reply) if file not in theirs)
        present = Present(container, has and replace(has, lifted=bool(has.lifted)), files)
        return _Seen(item, present, translate.cgroup_parent_in(reply.info), reply.status.started_at / 1e9)

    async def _with_cards(
        self, container: Container, item: api.Container, reply: api.ContainerStatusResponse, until_s: float
    ) -> Container:
        guarded, missed, created_s = GuardResult(), read_missed(item.annotations), item.created_at / 1e9
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                guarded = await self.devices.found(item, reply.info)
        if container.reservation:  # the stamp of a container that criproxy placed has the hints
            return container
        if self.bypass_times.cover(created_s) and POD_UID in item.labels:
            missed = Missed(why=Miss.BYPASSED, since_s=created_s)
        missed = missed or self.placing_since.missed(item)
        return replace(container, hints=guarded.hints, stays=guarded.stays, missed=missed)

    async def _apply(self, presents: Sequence[Present], pods: Sequence[Pod]) -> None:
        context, watch = self.context, self.context.settings.adopt is Adopt.WATCH
        await context.state.apply(Found(tuple(pods), tuple(presents), watch, context.is_before_change))
        for container in (each.container for each in presents):
            if container.stays:
                context.state.note(container, Kind.DEVICES, STAYS, reason=Word.NO_NODES.value)

    async def _mark_contested(self, found: Sequence[_Seen]) -> None:
        """Mark those that run on CPUs of others by criproxy's own answer: it had given up their places meanwhile.

        After a loss of the state, all are as they were placed, as far as is known.
        """
        if self.placing_since.is_lost:
            return
        node = self.context.state.node
        for key, started_s in ((each.item.id, each.started_s) for each in found if each.present.container.reservation):
            if started_s and key in node.grants and not node.containers[key].missed and self._contested(key):
                await self.context.state.apply(PlacesMissed((key,), started_s))

    def _pods(
        self, listed: Mapping[str, api.PodSandbox], parents: Mapping[str, str], totals: Mapping[str, int]
    ) -> list[Pod]:
        """Return the unknown sandboxes among *parents*, which has their cgroups as far as they are known."""
        known = self.context.state.node.pods
        new = [key for key in parents if key in listed and key not in known]
        return [translate.found_pod(listed[key], parents[key], totals.get(key, 0)) for key in new]

    def _report(self, adopted: Sequence[str]) -> None:
        """Log what was adopted, and enqueue containers that differ from their grants."""
        self.context.counters.adoptions += len(adopted)
        node = self.context.state.node
        placed = [(key, node.grants[key]) for key in adopted if key in node.grants]
        misplaced = [key for key, grant in placed if not in_place(grant, node.applied.get(key))]
        self.context.log.info("adopted running containers", containers=len(adopted), to_be_moved=len(misplaced))
        if contested := NO_CPUS.union(*map(self._contested, misplaced)):
            self.context.counters.conflicts_repaired += len(contested)
            text = "other containers used exclusive CPUs, and move away"
            self.context.log.warning(text, cpus=format_cpuset(contested))
        self.reconciler.enqueue(misplaced)

    def _contested(self, key: str) -> CpuSet:
        """Return the CPUs of *key*, which has a grant, that are exclusive to another container."""
        node = self.context.state.node
        has = node.applied.get(key) if node.containers[key].state in MAY_RUN else None
        return (has.cpus & node.exclusive_cpus) - node.grants[key].exclusive if has else NO_CPUS


def _may_lack_classes(node: Node, item: api.Container) -> bool:
    """Whether a known container has a place and no classes, and a criproxy without any may have placed it."""
    known, stamp = node.containers.get(item.id), read_stamp(item.annotations)
    if known is None or known.pod not in node.pods or item.id not in node.grants or item.id in node.controlled_keys:
        return False
    return stamp is None or stamp.is_before_classes


def _rank(item: api.Container) -> int:
    stamp = read_stamp(item.annotations)
    if stamp is None:
        return 2
    return 0 if stamp.qos == QosClass.GUARANTEED.value else 1
