"""What happens in a life, and what follows from it: which files are in force, and what cards have been through."""

import asyncio
from pathlib import Path

from lab.lives import configurations
from lab.lives.configurations import Files
from lab.lives.expected import Memory
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
            case "start", (str(part),):
                await self.start(part)
            case "stop", (str(part), bool(killed)):
                await self.stop(part, killed=killed)
            case "restart", (str(part), bool(killed)):
                await self.stop(part, killed=killed)
                await self.start(part)
            case "pod", (Wish() as wish, float(after_s)):
                await asyncio.sleep(after_s)
                await self.workloads.make(wish)
            case "end", (str(name),):
                self.workloads.end(name)
            case "crash", (str(name),):
                self.workloads.crash(name)
            case "files", (Files() as files,):
                self._write(files)
            case "spoil", (int(number),):
                configurations.spoil(self.policy, number)
                self.written = None
            case _:
                self._to_cards(event)

    def _to_cards(self, event: Event) -> None:
        machine, up = self.machine, self.node.up[PLUGIN]
        match event.kind, event.values:
            case "add", (str(kind), int(number)):
                machine.add(kind, number)
            case "remove", (str(kind), int(number)):
                machine.remove(kind, number)
            case "node lost", (int(number),):
                machine.lose_node(number)
            case "node back", (int(number),):
                machine.node_back(number)
            case "bad", (int(number),):
                machine.say(number, "is too hot")
            case "good", (int(number),):
                machine.say(number, "")
            case "command breaks" | "command works", ():
                machine.break_command(broken=event.kind == "command breaks")
            case "xid", (int(number),):
                if up and NVIDIA in self.files.kinds:
                    machine.xid(number)
                    self.memory.happened((NVIDIA, f"GPU-{number}"), self._loop.time())
        self._observe()

    def _write(self, files: Files) -> None:
        """Another file."""
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
        if part == KUBELET:
            async with self.workloads.admitting:
                await self.node.stop(part, killed=killed)
        else:
            await self.node.stop(part, killed=killed)

    def _observe(self) -> None:
        if self.node.up[PLUGIN]:
            self.memory.observe(self.machine, self.files, self._loop.time())
