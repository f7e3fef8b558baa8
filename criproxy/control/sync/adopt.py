"""Takes in what the runtime has and we do not know: what somebody else started, and what a lost store had known.

A container is asked for what it wants (its stamp, then the sizes in force) and where it is (its cgroup). The engine
leaves it there; what that cannot mean for others is in `engine.found`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from criproxy.control.containers.cgroups import Seen, if_reported
from criproxy.control.context import Context
from criproxy.control.devices.guard import DeviceGuard, Guarded
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.control.settings import Adopt
from criproxy.control.sync.bypass_times import BypassTimes
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.stamp import read_missed, read_stamp
from criproxy.devices.boundary import Word
from criproxy.engine.events import Found, Present, UpdateApplied
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS, in_place
from criproxy.model.node import Node
from criproxy.model.resources import MAX_MACHINE_MILLI
from criproxy.model.workload import MAY_RUN, ContainerState, Miss, Missed, Pod, QosClass
from criproxy.store.record import Kind

_AT_ONCE = 16
"""Containers that are asked for side by side and taken in with one event: that keeps the loop for a few ms."""

EVIDENCE_S = 2.0
"""How long the containers of one list may be held up by the kubelet, which knows where the cards of strangers are."""

STAYS = "it has a card, and no node of one was made in it: an update could take the card away, so it stays where it is"

POD_UID = "io.kubernetes.pod.uid"
"""The label by which a kubelet knows its containers."""

T = TypeVar("T")
Disturbed = Callable[..., bool]
"""Whether something happened to what has one of these ids since it was listed."""


@dataclass(slots=True)
class Adoption:
    """Turns unknown containers of a list into events."""

    context: Context
    reconciler: Reconciler
    devices: DeviceGuard
    bypass_times: BypassTimes
    _until_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + EVIDENCE_S

    async def take_in(
        self,
        sandboxes: Sequence[api.PodSandbox],
        containers: Sequence[api.Container],
        disturbed: Disturbed,
        *,
        with_exited: bool = False,
    ) -> Sequence[str]:
        """Take in what is unknown, but for what is *disturbed* when its turn comes.

        Args:
            sandboxes: a list of the runtime.
            containers: a list of the runtime.
            disturbed: see there.
            with_exited: also those that have exited by the list, if processes of theirs are left.

        Returns:
            The ids of the containers.

        Raises:
            RuntimeCallError: if the runtime cannot be asked; what has been taken in stays so.
        """
        listed = {item.id: item for item in sandboxes}
        taken = list[str]()
        for some in _batched(self._unknown(containers, with_exited=with_exited), _AT_ONCE):
            looks = await asyncio.gather(*(self._look(item) for item in some))
            found = [
                (item, look)
                for item, look in zip(some, looks, strict=True)
                if look and not disturbed(item.id, item.pod_sandbox_id)
            ]
            pods = {item.pod_sandbox_id: look.parent for item, look in found}
            totals = _totals(item for item, _ in found)
            event = self._event([look.present for _, look in found], self._pods(listed, pods, totals))
            await self.context.state.apply(event)
            taken += [look.present.container.key for _, look in found]
            for container in (look.present.container for _, look in found if look.present.container.stays):
                self.context.state.note(container, Kind.DEVICES, STAYS, reason=Word.NO_NODES.value)
        if left := [pod for pod in self._pods(listed, dict.fromkeys(listed, "")) if not disturbed(pod.key)]:
            await self.context.state.apply(self._event([], left))
        await self._report(taken)
        return taken

    async def find_cards(self, containers: Sequence[api.Container]) -> None:
        """Find out who has which cards, of containers at whose create nobody looked; raises RuntimeCallError.

        One that has a card without a node of it is left where it is from now on.
        """
        for item in await self.devices.untold(containers):
            seen, reply = await if_reported(self.context.cgroups.ask(item.id)) or (Seen(None), None)
            container = self.context.state.node.containers.get(item.id)
            if reply is None or container is None or seen.state in (None, ContainerState.EXITED):
                continue
            found = await self.devices.found(
                item, translate.device_nodes_in(reply.info), privileged=translate.privileged_in(reply.info)
            )
            if found.stays and not container.stays:
                await self.context.state.apply(self._event([Present(replace(container, stays=True), seen.applied)], []))
                self.context.state.note(item.id, Kind.DEVICES, STAYS, reason=Word.NO_NODES.value)

    async def follow_watched(self) -> None:
        """Look where containers are that are only watched; raises RuntimeCallError."""
        node = self.context.state.node
        for key in node.applied.keys() - node.grants.keys():
            seen = await if_reported(self.context.cgroups.read(key)) if node.is_watched(key) else None
            if seen and (has := seen.applied):
                await self.context.state.apply(UpdateApplied(key, has.cpus, has.mems))

    def _unknown(self, containers: Sequence[api.Container], *, with_exited: bool) -> list[api.Container]:
        """Those to look at, and to take in unless they have ended.

        First whom others have to make room for, and later attempts before those that gave way.
        """
        node, pin = self.context.state.node, self.context.settings.adopt is Adopt.PIN
        unknown = [
            item
            for item in containers
            if (with_exited or translate.state(item) is not ContainerState.EXITED)
            and (item.id not in node.containers or (pin and self._may_be_pinned(node, item.id)))
        ]
        if self.context.state.bypassed:  # the policy is not asked who owns CPUs: ours have to wait
            unknown = [item for item in unknown if read_stamp(item.annotations) is None]
        return sorted(unknown, key=lambda item: (_rank(item), -item.metadata.attempt))

    @staticmethod
    def _may_be_pinned(node: Node, key: str) -> bool:
        """Whether a container is only watched, and nothing but the settings say so."""
        return node.is_watched(key) and not node.containers[key].stays

    async def _look(self, item: api.Container) -> "_Look | None":
        """None for one that is gone or has ended; where the runtime tells no more than its list, that has to do."""
        told = await if_reported(self.context.cgroups.ask(item.id))
        seen, reply = told or (Seen(translate.state(item)), api.ContainerStatusResponse())
        if reply is None or seen.state in (None, ContainerState.EXITED):
            return None
        capacity_bytes = self.context.state.node.topology.capacity_bytes
        container = replace(translate.found_container(item, reply, capacity_bytes), state=seen.state)
        found = await self._devices(item, reply)
        if not container.reservation:  # ours say themselves where their cards are
            container = replace(container, hints=found.hints, stays=found.stays, missed=self._missed(item))
        has = translate.sets(reply.status)
        if container.state is ContainerState.RUNNING:
            has = seen.applied and replace(seen.applied, lifted=bool(seen.lifted))
        return _Look(Present(container, has), translate.cgroup_parent_in(reply.info))

    def _missed(self, item: api.Container) -> Missed | None:
        """Why a container without our stamp has none, if that is our fault or came of a bypass."""
        created_s = item.created_at / 1e9
        if self.bypass_times.cover(created_s) and POD_UID in item.labels:
            return Missed(why=Miss.BYPASSED, since_s=created_s)
        return read_missed(item.annotations)

    async def _devices(self, item: api.Container, reply: api.ContainerStatusResponse) -> Guarded:
        """What is known of the cards of a container that nobody remembers, unless finding out takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until_s):
                nodes, privileged = translate.device_nodes_in(reply.info), translate.privileged_in(reply.info)
                return await self.devices.found(item, nodes, privileged=privileged)
        return Guarded()

    def _event(self, presents: Sequence[Present], pods: Sequence[Pod]) -> Found:
        return Found(tuple(pods), tuple(presents), watch=self.context.settings.adopt is Adopt.WATCH)

    def _pods(
        self,
        listed: Mapping[str, api.PodSandbox],
        wanted: Mapping[str, str],
        totals: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Pod]:
        """The unknown ones of the sandboxes *wanted*, of which the path of the cgroup may be known."""
        known = self.context.state.node.pods
        return [
            translate.found_pod(listed[key], parent, totals.get(key, 0))
            for key, parent in wanted.items()
            if key in listed and key not in known
        ]

    async def _report(self, taken: Sequence[str]) -> None:
        """Say what was taken in, and see to it that everybody gets where they belong."""
        if not taken:
            return
        self.context.counters.adoptions += len(taken)
        node = self.context.state.node
        placed = [(key, node.grants[key]) for key in taken if key in node.grants]
        misplaced = [key for key, grant in placed if not in_place(grant, node.applied.get(key))]
        self.context.log.info("containers taken in", containers=len(taken), to_be_moved=len(misplaced))
        if contested := NO_CPUS.union(*map(self._contested, misplaced)):
            self.context.counters.conflicts_repaired += len(contested)
            self.context.log.warning("owned CPUs were used by others, too; those move", cpus=format_cpuset(contested))
        for some in _batched(misplaced, _AT_ONCE):
            self.reconciler.enqueue(some)
            await asyncio.sleep(0)

    def _contested(self, key: str) -> CpuSet:
        """CPUs that *key* is on and another owns."""
        node = self.context.state.node
        has, container = node.applied.get(key), node.containers.get(key)
        if has is None or container is None or container.state not in MAY_RUN or key not in node.grants:
            return NO_CPUS
        return (has.cpus & node.exclusive_cpus) - node.grants[key].exclusive


@dataclass(frozen=True, slots=True)
class _Look:
    """One container as the runtime and the kernel show it."""

    present: Present
    parent: str
    """The cgroup of its pod; empty where it is not known."""


def _totals(items: Iterable[api.Container]) -> dict[str, int]:
    """By sandbox the CPU of its whole pod, by the stamp of the container that came last."""
    found: dict[str, int] = {}
    for item in sorted(items, key=lambda item: item.created_at):
        stamp = read_stamp(item.annotations)
        if stamp and stamp.pod_cpu_milli > 0:
            found[item.pod_sandbox_id] = min(stamp.pod_cpu_milli, MAX_MACHINE_MILLI)
    return found


def _rank(item: api.Container) -> int:
    stamp = read_stamp(item.annotations)
    if stamp is None:
        return 2
    return 0 if stamp.qos == QosClass.GUARANTEED.value else 1


def _batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
