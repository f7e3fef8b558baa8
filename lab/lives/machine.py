"""The machine of one life: cards that come, go, fail and recover, as files and programs show them.

NVML, its events and the health command are programs that print files, so that a change costs no start of Python.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from criproxy.deviceplugin.cards.nvml_report import NvmlReport
from criproxy.deviceplugin.health.nvml_events import Registered
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.xids import Event
from criproxy.model.text.plain import to_plain
from tests.deviceplugin.hosts import Host, a100, part, t4
from tests.deviceplugin.joined import SHARED_NODES

NVIDIA, NPU, FAST = "nvidia", "ali-npu", "fast"
"""The classes; the last one is advertised in some configurations only."""
NUMBERS = {NVIDIA: range(3), NPU: range(4), FAST: range(2)}
"""The cards that a machine may have, by class."""
NODES = {NVIDIA: "/dev/nvidia{}", NPU: "/dev/npu{}", FAST: "/dev/fast{}"}
DIVIDED = 3
"""The number of the GPU that is divided into MIG devices, where there is one."""
XID = 79

Key = tuple[str, str]
"""The class and the id of a card."""


def card_id(kind: str, number: int) -> str:
    """The id of a whole card, as the kubelet knows it."""
    return f"GPU-{number}" if kind == NVIDIA else f"{kind.removeprefix('ali-')}{number}"


NODE_OF = {card_id(kind, number): NODES[kind].format(number) for kind, numbers in NUMBERS.items() for number in numbers}
"""The device node of each card, by its id."""


class Machine:
    """Everything below *root*, whose path has to be short.

    Args:
        root: of the life.
        has_mig: whether there is a GPU that is divided.
    """

    def __init__(self, root: Path, *, has_mig: bool) -> None:
        self.host = Host(root)
        self.host.root.mkdir()
        self.health = root / "health"
        self.report = root / "report.json"
        self.hello = root / "hello"
        self.fifo = root / "events"
        self.present: dict[str, set[int]] = {kind: set() for kind in NUMBERS}
        self.without_node: set[int] = set()
        """GPUs that are there while their node is not."""
        self.bad: dict[int, str] = {}
        """Why NPUs do not work, as the health command says."""
        self.broken = False
        """Whether the health command fails."""
        self.has_mig = has_mig
        self.mig_ids = ("MIG-1", "MIG-2") if has_mig else ()
        self.nvml_command = ("/bin/cat", str(self.report))
        """Prints what NVML says."""
        self.events_command = ("/bin/sh", "-c", f"cat {self.hello}; exec cat {self.fifo}")
        """Prints NVML's events as they come."""
        self.health_command = ("/bin/cat", str(self.health))
        """Prints which NPUs do not work."""
        os.mkfifo(self.fifo)
        self._events = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK)
        self._follower: Callable[[bytes], None] | None = None
        for path in SHARED_NODES:
            self.host.text(path)
        if has_mig:
            self.host.gpu(self._divided(0))
            self.host.mig(a100(DIVIDED), part(0), part(1))
        self._tell_health()
        self._tell_nvml()

    def close(self) -> None:
        """The life has ended."""
        os.close(self._events)

    # ---------------------------------------------------------------- what happens to cards

    def add(self, kind: str, number: int) -> None:
        """A card comes."""
        self.present[kind].add(number)
        if kind == NVIDIA:
            self._tell_nvml()
        self.host.text(NODES[kind].format(number))
        if kind == NVIDIA:
            self.host.text(f"{_proc(number)}/information", f"GPU UUID: \t GPU-{number}\nDevice Minor: \t {number}\n")

    def remove(self, kind: str, number: int) -> None:
        """A card goes."""
        self.present[kind].discard(number)
        if kind == NVIDIA:
            self._tell_nvml()
        if kind != NVIDIA or number not in self.without_node:
            self.host.unplug(NODES[kind].format(number))
        if kind == NVIDIA:
            self.without_node.discard(number)
            self.host.unplug(f"{_proc(number)}/information")
            (self.host.root / _proc(number)[1:]).rmdir()

    def lose_node(self, number: int) -> None:
        """The node of a GPU vanishes."""
        self.without_node.add(number)
        self.host.unplug(NODES[NVIDIA].format(number))

    def node_back(self, number: int) -> None:
        """It is there again."""
        self.without_node.discard(number)
        self.host.text(NODES[NVIDIA].format(number))

    def say(self, number: int, why: str) -> None:
        """The health command says from now on *why* an NPU does not work; empty: it does."""
        self.bad.pop(number, None)
        if why:
            self.bad[number] = why
        self._tell_health()

    def break_command(self, *, broken: bool) -> None:
        """The health command fails from now on, or works again."""
        self.broken = broken
        self._tell_health()

    def xid(self, number: int) -> None:
        """The driver reports an error of a GPU."""
        event = Event(gpu=f"GPU-{number}", xid=XID)
        line = f"{json.dumps({'event': to_plain(event)})}\n".encode()
        if self._follower is None:
            os.write(self._events, line)
        else:
            self._follower(line)

    def follow(self, feed: Callable[[bytes], None]) -> Callable[[], None]:
        """Hand NVML's events to *feed*, and not to a program, until what this returns is called."""
        self._follower = feed
        feed(self.hello.read_bytes())
        return lambda: setattr(self, "_follower", None)

    # ---------------------------------------------------------------- what programs say

    def _divided(self, index: int) -> Gpu:
        return replace(a100(DIVIDED), index=index, mig_enabled=True, mig=(part(0), part(1)))

    def _tell_nvml(self) -> None:
        # In NVML's order; its indexes have no gaps.
        whole = [replace(t4(number), index=index) for index, number in enumerate(sorted(self.present[NVIDIA]))]
        gpus = (*whole, *((self._divided(len(whole)),) if self.has_mig else ()))
        report = NvmlReport(gpus=gpus, driver_version="550.54.15", cuda_version=(12, 4))
        replace_file(self.report, json.dumps(to_plain(report)))
        hello = {"registered": to_plain(Registered(gpus=tuple(gpu.uuid for gpu in gpus)))}
        replace_file(self.hello, f"{json.dumps(hello)}\n")

    def _tell_health(self) -> None:
        if self.broken:
            self.health.unlink(missing_ok=True)
        else:
            replace_file(self.health, "".join(f"npu{number} {why}\n" for number, why in sorted(self.bad.items())))


def _proc(number: int) -> str:
    return f"/proc/driver/nvidia/gpus/0000:1{number}:00.0"


def replace_file(path: Path, text: str) -> None:
    """Nobody reads half of it."""
    new = path.with_name(f".{path.name}")
    new.write_text(text)
    new.rename(path)
