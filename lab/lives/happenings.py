"""What happens in a life, what follows from it, and in which way it is not.

Which files are in force, what cards have been through, and what everybody has to know by then.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from lab.lives import configurations
from lab.lives.configurations import Files
from lab.lives.expected import ANY, GOOD, Memory, differs, expected
from lab.lives.machine import NVIDIA, Machine
from lab.lives.node import KUBELET, PLUGIN, Node
from lab.lives.pods import Wish
from lab.lives.script import Event, Step
from lab.lives.workloads import Workloads


class Happenings:
    """The node of one life, and what has happened to it.

    Args:
        machine: with the cards.
        files: those of the beginning.
    """

    def __init__(self, machine: Machine, files: Files) -> None:
        self.machine = machine
        self.policy: Path = machine.host.root / "policy.yaml"
        self.node = Node(machine, self.policy)
        self.workloads = Workloads(self.node, machine)
        self.memory = Memory()
        self.written: Files | None = files
        """What the file says; None: nothing that can be used."""
        self.files = files
        """What is in force."""
        self._loop = asyncio.get_running_loop()

    @property
    def now_s(self) -> float:
        """The time of the life."""
        return self._loop.time()

    async def happens(self, event: Event) -> None:
        """Do it."""
        match event.kind, event.values:
            case "pod", (wish, after_s):
                await asyncio.sleep(after_s)
                await self.workloads.make(wish)
            case "start" | "stop" | "restart", (part, *killed):
                if killed:
                    await self.stop(part, killed=killed[0])
                if event.kind != "stop":
                    await self.start(part)
            case _:
                self._happens_at_once(event)

    def _happens_at_once(self, event: Event) -> None:
        machine = self.machine
        acts: dict[str, Callable[..., None]] = {
            "end": self.workloads.end,
            "crash": self.workloads.crash,
            "files": self._write,
            "spoil": lambda number: self._write(None, number),
            "add": machine.add,
            "remove": machine.remove,
            "node lost": machine.lose_node,
            "node back": machine.node_back,
            "bad": lambda number: machine.say(number, "is too hot"),
            "good": lambda number: machine.say(number, ""),
            "command breaks": lambda: machine.break_command(broken=True),
            "command works": lambda: machine.break_command(broken=False),
            "xid": self._xid,
        }
        acts[event.kind](*event.values)
        self._observe()

    def _xid(self, number: int) -> None:
        if self.node.up[PLUGIN] and NVIDIA in self.files.kinds:
            self.machine.xid(number)
            self.memory.happened((NVIDIA, f"GPU-{number}"), self.now_s)

    def _write(self, files: Files | None, number: int = 0) -> None:
        """Another file; None: one of those that cannot be used."""
        if files is None:
            configurations.spoil(self.policy, number)
        else:
            files.write(self.policy, self.machine)
        self.written = files
        self._use_written()

    def cards_changed(self, step: Step) -> None:
        """Files that name cards that were not there are tried again when one comes or goes of a class of theirs.

        The same holds for the classes in force.

        To be called when all of *step* has happened: the device plugin may see nothing in between.
        """
        kinds = self.files.kinds | (self.written.kinds if self.written is not None else set())
        if any(event.subject.startswith(f"card {kind} ") for event in step for kind in kinds):
            self._use_written()

    def _use_written(self) -> None:
        """What is written is in force, unless it names a card that is not there."""
        if self.node.up[PLUGIN] and self.written is not None and self.written.fits(self.machine):
            self.files = self.written
            self._observe()

    async def start(self, part: str) -> None:
        """Start one part."""
        if part == PLUGIN:
            if self.written is None:  # it would end at once
                self._write(self.files)
            self.files = self.written or self.files
            self.memory = Memory()
        await self.node.start(part)
        self._observe()
        if part == KUBELET:
            async with self.workloads.admitting:
                await self.workloads.kubelet_is_back()

    async def stop(self, part: str, *, killed: bool) -> None:
        """End one part."""
        async with self.workloads.admitting if part == KUBELET else nullcontext():
            await self.node.stop(part, killed=killed)

    def _observe(self) -> None:
        if self.node.up[PLUGIN]:
            self.memory.observe(self.machine, self.files, self.now_s)


# ---------------------------------------------------------------- what has to be


def unknown(life: Happenings) -> str:
    """In which way the kubelet, or the device plugin without one, does not know what it has to; empty: in none."""
    if failed := life.node.failed():
        return failed
    node = life.node
    if not node.up[KUBELET]:
        return _unpublished(life) if node.up[PLUGIN] else ""
    if not node.up[PLUGIN]:
        return differs({}, node.told())
    return differs(expected(life.machine, life.files, life.memory, node.in_use(), life.now_s), node.told())


def _unpublished(life: Happenings) -> str:
    """The same without a kubelet: then it is not known which cards containers have, and in which way."""
    should = expected(life.machine, life.files, life.memory, {}, life.now_s)
    told = life.node.published()
    for name, states in should.items():
        there = told.get(name, {})
        states.update({one: ANY for one, state in states.items() if state == GOOD and there.get(one) is False})
    listed = {
        name: {one: good for one, good in there.items() if good or one in should.get(name, {})}
        for name, there in told.items()
    }
    return differs({name: states for name, states in should.items() if states}, listed)


def must_admit(life: Happenings, wish: Wish) -> bool:
    """Whether there are enough devices for a pod, with all that it takes to admit it."""
    if not (life.node.up[KUBELET] and life.node.up[PLUGIN]):
        return False
    in_use = life.node.in_use()
    states = expected(life.machine, life.files, life.memory, in_use, life.now_s)
    wanted = Counter[str]()
    for name, each in wish.containers:
        wanted += Counter() if name.startswith("init") else Counter(each)
    free = {
        name: {one for one, state in states.get(name, {}).items() if state == GOOD} - set(in_use.get(name, ()))
        for name in wanted
    }
    return all(len(free[name]) >= count for name, count in wanted.items())


def left(life: Happenings) -> Iterator[str]:
    """What is left of pods that have ended."""
    world, guard = life.node.world, life.node.world.controller.devices
    if in_use := {name: ids for name, ids in life.node.in_use().items() if ids}:
        yield f"the ids {in_use}"
    if world.runtime.core.records.sandboxes or world.runtime.core.records.containers:
        yield "sandboxes or containers of the runtime"
    if world.controller.node.containers or world.controller.node.grants:
        yield "containers that criproxy knows"
    if guard.sandboxes():
        yield "sandboxes of whose devices criproxy knows"
    plugin = life.node.plugin
    if plugin is not None and (held := [each.resource for each in plugin._plugins.status if each.held]):
        yield f"ids that are listed only for their containers, of {', '.join(held)}"
