"""Faults to plant in criproxy, to see that the checker finds them. Only the launcher plants them."""

import json
from asyncio import Event
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite
from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.stamp import ANNOTATION, Stamp
from criproxy.model.attributes import STORED, shown
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, Grant
from criproxy.model.workload import Container
from criproxy.node.calls.create import Creates, HeldCreate
from criproxy.node.calls.start import Starts
from criproxy.node.cgroups import Attributes, Cgroups, Seen
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.sync.hotplug import Hotplug
from criproxy.node.sync.unseen import PlacingSince
from criproxy.placement.events import ContainerGone
from criproxy.wire.calls import Call, Outcome, OutcomeKind


def _barrier_skipped() -> None:
    """A start waits for nobody."""
    _replace(Reconciler, "blockers", lambda self, key: [])
    _replace(Starts, "_check_cpus", lambda self, key: None)


def _undo_on_reset() -> None:
    """A create that ended without an answer gives its place back at once."""
    done = Creates.done

    def undo(self: Creates, call: Call, outcome: Outcome) -> bool:
        if outcome.kind is OutcomeKind.UNKNOWN and isinstance(call.context, HeldCreate):
            self.context.state.submit(ContainerGone(call.context.place))
        return done(self, call, outcome)

    _replace(Creates, "done", undo)


def _place_from_stamp() -> None:
    """The stamp says where a container was put; until we move it ourselves, it is believed to be there still."""
    place, update = rewrite.place, RuntimeClient.update_container_resources
    moved: set[str] = set()

    def stamped(request: api.CreateContainerRequest, grant: Grant, container: Container, stamp: Stamp) -> bytes:
        written = api.CreateContainerRequest.FromString(place(request, grant, container, stamp))
        values = json.loads(written.config.annotations[ANNOTATION])
        written.config.annotations[ANNOTATION] = json.dumps({**values, **shown("", grant)})
        return written.SerializeToString()

    def believed(container_id: str, applied: Applied, reply: api.ContainerStatusResponse | None) -> Applied:
        values = json.loads(reply.status.annotations.get(ANNOTATION, "{}")) if reply else {}
        if container_id in moved or "cpus" not in values:
            return applied
        return Applied(parse_cpuset(values["cpus"]), parse_cpuset(values["mems"]))

    async def move(self: RuntimeClient, container_id: str, linux: api.LinuxContainerResources) -> None:
        await update(self, container_id, linux)
        moved.add(container_id)

    _replace(rewrite, "place", stamped)
    _believe(believed)
    _replace(RuntimeClient, "update_container_resources", move)


def _moves_believed() -> None:
    """What criproxy sends to move others goes nowhere, and it believes that they are where they were sent."""
    update = RuntimeClient.update_container_resources
    sent: dict[str, Applied] = {}

    async def move(self: RuntimeClient, container_id: str, linux: api.LinuxContainerResources) -> None:
        if not linux.cpuset_cpus:
            await update(self, container_id, linux)
            return
        sent[container_id] = Applied(parse_cpuset(linux.cpuset_cpus), parse_cpuset(linux.cpuset_mems))

    def believed(container_id: str, applied: Applied, reply: api.ContainerStatusResponse | None) -> Applied:
        there = sent.get(container_id, applied)
        return replace(there, mems=there.mems or applied.mems)

    _believe(believed)
    _replace(RuntimeClient, "update_container_resources", move)


def _believe(believed: Callable[[str, Applied, api.ContainerStatusResponse | None], Applied]) -> None:
    """Where a container runs, is what *believed* makes of what its cgroup says."""
    ask = Cgroups.ask

    async def believe(
        self: Cgroups, container_id: str, attributes: Attributes = STORED
    ) -> tuple[Seen, api.ContainerStatusResponse | None]:
        seen, reply = await ask(self, container_id, attributes)
        return replace(seen, applied=seen.applied and believed(container_id, seen.applied, reply)), reply

    async def read(self: Cgroups, container_id: str, attributes: Attributes = STORED) -> Seen:
        return (await believe(self, container_id, attributes))[0]

    _replace(Cgroups, "ask", believe)
    _replace(Cgroups, "read", read)


def _check_complains() -> None:
    """``status --check`` finds containers misplaced that are where they belong."""
    from criproxy.api.views import status_check as report
    from criproxy.api.views.situation import Situation

    def misplaced(situation: Situation) -> list[tuple[str, bool]]:
        return [(f"{one.title} is to be elsewhere", True) for one in situation.node.containers.values()]

    _replace(report, "misplaced", misplaced)


def _unplaced_untold() -> None:
    """Containers about which nobody asked criproxy get their place, and are not told of."""
    _replace(PlacingSince, "missed", lambda self, item: None)


def _create_hangs() -> None:
    """No create of a container is decided."""

    async def hang(self: Hotplug, container: Container, cgroup_parent: str) -> None:
        await Event().wait()

    _replace(Hotplug, "follow", hang)


def _replace(owner: object, name: str, value: Callable[..., Any]) -> None:
    """Plant *value*; it must be called as what it replaces is, or criproxy fails at the call instead of going wrong."""
    has, takes = signature(getattr(owner, name)).parameters, signature(value).parameters
    if list(has) != list(takes):
        raise TypeError(f"{name} takes ({', '.join(has)}), and what is planted takes ({', '.join(takes)})")
    setattr(owner, name, value)


PLANTS: dict[str, Callable[[], None]] = {
    "barrier-skipped": _barrier_skipped,
    "undo-on-reset": _undo_on_reset,
    "place-from-stamp": _place_from_stamp,
    "moves-believed": _moves_believed,
    "check-complains": _check_complains,
    "create-hangs": _create_hangs,
    "unplaced-untold": _unplaced_untold,
}
