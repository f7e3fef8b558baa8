"""The content of the page: the answers of `criproxy status` and other commands, and the reasons for places.

docs/page.md documents the keys.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any

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
from criproxy.process.control_socket import Command
from criproxy.store.history import newest

PLACING = (Kind.GRANTED, Kind.ADOPTED, Kind.PASSED)
"""Kinds of records that begin the history of a container instance, and contain the reason for its place."""
MOVING = (Kind.RESIZED, Kind.RELEASED)
"""Kinds of records that replace this reason."""


def machine(topology: Topology) -> Values:
    """Return the CPUs in their order on the page: NUMA nodes, their level 3 caches, and the threads of each core."""
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
    """Return the sums of memory limits, by the NUMA nodes to which the memory of containers is restricted.

    Containers without a limit are only counted.
    """
    limits = dict[CpuSet, list[int]]()
    for key, grant in node.grants.items():
        container = node.containers.get(key)
        if container and grant.mems and container.state is not ContainerState.EXITED:
            limits.setdefault(grant.mems, []).append(container.memory_limit_bytes or 0)
    return [
        {"mems": format_cpuset(mems), "bytes": sum(sizes), "containers": len(sizes), "unlimited": sizes.count(0)}
        for mems, sizes in sorted(limits.items(), key=lambda item: (len(item[0]), sorted(item[0])))
    ]


def placing(record: Record, known: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return since when a container has existed, and the reason for its place; None if *record* changes neither.

    Args:
        record: the next one of its history.
        known: the result for the records before; empty if there were none.
    """
    if record.kind not in PLACING and not (known and record.kind in MOVING):
        return None
    reason = record.sentences[0].removeprefix(record.container).lstrip(": ") if record.sentences else ""
    return {"since": known.get("since") or timestamp(record.at_s), "why": reason}


BESIDE = ("devices", "usage")
"""Commands whose answers the page shows as they are."""
PATIENCE_S, AGAIN_S = 0.3, 0.3
"""How long a picture waits for the history, and the pause before the next picture, which tries again."""
LATE = "it is still being written"
STAMPS = ("time", "pid", "version")
"""The keys of the other answers that would make each picture differ from the one before."""


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
    _last_event: int = 0
    """The number of the last event in the history that was read."""
    _placings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The results of `placing` by container instance."""

    async def take(self, before: Picture | None) -> Picture:
        """Return a picture of the node; without *before*, it includes the events of the history.

        Raises:
            CriproxyError: a command failed.
        """
        if before is None:
            self._last_event = 0
        node = self.controller.node
        status = await self.commands["status"]({"check": True})
        answers = {name: await self.commands[name]({}) for name in BESIDE}
        records, problem = await self._history([container.life for container in node.containers.values()])
        placings = dict(self._placings)

        def encode() -> Picture:  # a large node takes longer than the event loop may be held
            values = json.loads(status)
            rows = {_life(row): {**row, **placings.get(_life(row), {})} for row in values.pop("containers")}
            parts = {
                "status": values,
                "machine": {"host": self.host, **machine(node.topology)},
                "memory": promised(node),
                "history": {"problem": problem},
                **{name: _steady(json.loads(answer)) for name, answer in answers.items()},
            }
            return picture(parts, rows, before, events.to_values(records, 0)["events"])

        return await asyncio.to_thread(encode)

    async def changed(self) -> None:
        """Return when the next picture may differ."""
        if self._behind:
            await asyncio.sleep(AGAIN_S)
        else:
            await self.controller.context.state.changed()

    async def _history(self, lives: Sequence[str]) -> tuple[Sequence[Record], str]:
        """Return the records since the picture before, and why they are missing; wait only a moment for the disk."""
        records: Sequence[Record] = ()
        problem, self._behind = "", False
        try:
            async with asyncio.timeout(PATIENCE_S):
                records, problem = await self._new_records()
                await self._recall(lives)
        except TimeoutError:
            problem, self._behind = "" if records else LATE, True  # with records, only `_recall` was late
        return records, problem

    async def _new_records(self) -> tuple[Sequence[Record], str]:
        """Return the records since the picture before, and why they are missing."""
        state = self.controller.context.state
        try:
            records, self._last_event = await state.history_since(self._last_event, events.LEFT_OUT)
        except CriproxyError as error:
            return (), str(error)
        for record in records:
            self._learn(record)
        return records, ""

    async def _recall(self, lives: Sequence[str]) -> None:
        """Read the placings that the newest records do not contain; forget those of containers that are gone."""
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
        if record.kind is not Kind.NODE and (found := placing(record, self._placings.get(record.life, {}))):
            self._placings[record.life] = found


def _life(row: Mapping[str, Any]) -> str:
    """Return `Container.life` of a row."""
    return str(row["reservation"] or row["id"])


def _steady(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return *answer* without what changes although the node does not."""
    return {key: value for key, value in answer.items() if key not in STAMPS}
