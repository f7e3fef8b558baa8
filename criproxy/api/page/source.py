"""Looks at the node for the page: the answers of the same commands that `criproxy status` and its siblings ask.

Pure functions, like the other views. docs/page.md documents the keys.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any

from criproxy.api.control_socket import Command
from criproxy.api.page.stream import Picture, picture
from criproxy.api.views import events
from criproxy.api.views.cpu_blocks import blocks_of
from criproxy.errors import CriproxyError
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import ContainerState
from criproxy.node.controller import Controller
from criproxy.store.history import newest

PLACING = (Kind.GRANTED, Kind.ADOPTED, Kind.PASSED)
"""Kinds of records that begin the life of a container, and say why it is where it is."""
MOVING = (Kind.RESIZED, Kind.RELEASED)
"""Kinds of records after which the reason is another one."""


def machine(topology: Topology) -> Values:
    """The CPUs as they lie beside each other: NUMA nodes, their level 3 caches, and the threads of each core."""
    core_of = topology.core_of

    def cores(cpus: tuple[int, ...]) -> list[list[int]]:
        return [[*threads] for _, threads in groupby(cpus, key=lambda cpu: core_of[cpu].id if cpu in core_of else cpu)]

    return {
        "blocks": [
            {
                "package": block.package if block.package >= 0 else None,
                "numa_node": block.node if block.node >= 0 else None,
                "caches": [cores(group) for group in block.groups],
            }
            for block in blocks_of(topology)
        ],
        "memory": [
            {
                "numa_node": numa.id,
                "kind": numa.kind.value,
                "memory_bytes": numa.memory_bytes,
                "usable": numa.id in topology.mems,
            }
            for numa in topology.nodes
            if numa.memory_bytes
        ],
    }


def promised(node: Node) -> list[Values]:
    """How much memory containers may use at the most, by the NUMA nodes on which they may use it.

    Containers without a limit are only counted, since they are promised nothing.
    """
    limits = dict[CpuSet, list[int]]()
    for key, grant in node.grants.items():
        container = node.containers.get(key)
        if container and grant.mems and container.state is not ContainerState.EXITED:
            limits.setdefault(grant.mems, []).append(container.memory_limit_bytes or 0)
    return [
        {
            "mems": format_cpuset(mems),
            "bytes": sum(sizes),
            "containers": len(sizes),
            "unlimited": sizes.count(0),
        }
        for mems, sizes in sorted(limits.items(), key=lambda item: (len(item[0]), sorted(item[0])))
    ]


def placing(record: Record, known: Mapping[str, str]) -> Mapping[str, str] | None:
    """Since when a container exists, and why it is where it is, as *record* says; None if it says nothing of that.

    Args:
        record: the next one of its history.
        known: what the records before said; empty if there were none.
    """
    if record.kind not in PLACING and not (known and record.kind in MOVING):
        return None
    said = record.sentences[0].removeprefix(record.container).lstrip(": ") if record.sentences else ""
    return {"since": known.get("since") or timestamp(record.at_s), "why": said}


BESIDE = ("devices", "usage")
"""Commands whose answers the page shows as they are."""
PATIENCE_S, AGAIN_S = 0.3, 0.3
"""How long a look waits for the history, and after which time the next look tries again."""
LATE = "it is still being written"
STAMPS = ("time", "pid", "version")
"""Of answers beside that of `status`: they would differ in each look."""


@dataclass(slots=True, repr=False)
class Looks:
    """Takes pictures of the node, one after the other.

    Args:
        controller: has the node and the history.
        commands: the handlers of the control socket, by command name.
        host: the name of this machine.
    """

    controller: Controller
    commands: Mapping[str, Command]
    host: str = ""
    _behind: bool = False
    """Whether the history could not be read in time."""
    _last: int = 0
    """The number of the last event in the history that was read."""
    _placings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By container instance, what `placing` says."""

    async def take(self, before: Picture | None) -> Picture:
        """Look at the node; without *before*, the events of the history come along.

        Raises:
            CriproxyError: a command failed.
        """
        if before is None:
            self._last = 0
        node = self.controller.node
        status = await self.commands["status"]({"check": True})
        beside = {name: await self.commands[name]({}) for name in BESIDE}
        records, problem = await self._history([container.life for container in node.containers.values()])
        seen = _Seen(node, self.host, status, beside, records, problem, dict(self._placings))
        return await asyncio.to_thread(seen.picture, before)

    async def changed(self) -> None:
        """Return when there is something new to look at."""
        if self._behind:
            await asyncio.sleep(AGAIN_S)
        else:
            await self.controller.context.state.changed()

    async def _history(self, lives: Sequence[str]) -> tuple[Sequence[Record], str]:
        """The records since the look before, and why there are none; what is in memory is not held up by the disk."""
        records: Sequence[Record] = ()
        problem, self._behind = "", False
        try:
            async with asyncio.timeout(PATIENCE_S):
                records, problem = await self._new_records()
                await self._recall(lives)
        except TimeoutError:
            problem, self._behind = "" if records else LATE, True
        return records, problem

    async def _new_records(self) -> tuple[Sequence[Record], str]:
        """The records since the look before, and why there are none."""
        try:
            records, self._last = await self.controller.context.state.history_since(self._last, events.LEFT_OUT)
        except CriproxyError as error:
            return (), str(error)
        for record in records:
            self._learn(record)
        return records, ""

    async def _recall(self, lives: Sequence[str]) -> None:
        """Read why containers are where they are, if that was not among the newest records; forget those that left."""
        self._placings = {life: self._placings[life] for life in lives if life in self._placings}
        unknown = [life for life in lives if life not in self._placings]
        if not unknown:
            return
        read = self.controller.context.persister.read
        try:
            found = [await read(newest, kind, unknown) for kind in (*PLACING, *MOVING)]
        except CriproxyError:  # the newest records could not be read either, and the page says so
            return
        for record in sorted(chain(*found), key=lambda each: each.at_s):
            self._learn(record)
        for life in unknown:
            self._placings.setdefault(life, {})

    def _learn(self, record: Record) -> None:
        if record.kind is not Kind.NODE and (said := placing(record, self._placings.get(record.life, {}))):
            self._placings[record.life] = said


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was read for a picture; a thread makes the picture of it, which takes longer the larger the node is."""

    node: Node
    host: str
    status: bytes
    beside: Mapping[str, bytes]
    records: Sequence[Record]
    problem: str
    placings: Mapping[str, Mapping[str, str]]

    def picture(self, before: Picture | None) -> Picture:
        """Encode all of it."""
        told = json.loads(self.status)
        rows = {_life(row): {**row, **self.placings.get(_life(row), {})} for row in told.pop("containers")}
        parts = {
            "status": told,
            "machine": {"host": self.host, **machine(self.node.topology)},
            "memory": promised(self.node),
            "history": {"problem": self.problem},
            **{name: _steady(json.loads(answer)) for name, answer in self.beside.items()},
        }
        return picture(parts, rows, before, events.to_values(self.records, 0)["events"])


def _life(row: Mapping[str, Any]) -> str:
    """As `Container.life`."""
    return str(row["reservation"] or row["id"])


def _steady(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in STAMPS}
