"""The use of the node's CPUs and memory, from /proc."""

from pathlib import Path

import pytest

from criproxy.node.counters import KEPT_S, NodeUse

MEMINFO = {"MemTotal": 1000, "MemFree": 1, "MemAvailable": 400}
"""In kB."""


class Machine:
    """/proc of a machine, and its clock."""

    def __init__(self, directory: Path) -> None:
        self.now_s = 100.0
        self._proc = directory / "proc"
        self._proc.mkdir()
        self.ticks(busy=0, idle=0)
        self.use = NodeUse(directory, lambda: self.now_s)

    def ticks(self, busy: int, idle: int) -> None:
        """What CPUs did since the boot: half of *idle* waits for disks, and guests are in *busy* already."""
        half = busy // 2
        (self._proc / "stat").write_text(f"cpu  {half} 0 {busy - half} {idle // 2} {idle - idle // 2} 0 0 0 {half} 0\n")

    def memory(self, text: str) -> None:
        """What /proc/meminfo says."""
        (self._proc / "meminfo").write_text(text)

    def memory_of(self, **amounts: int) -> None:
        """Let /proc/meminfo say these amounts, in kB, and otherwise what it usually says."""
        self.memory("".join(f"{name}: {kib} kB\n" for name, kib in (MEMINFO | amounts).items()))


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    """Return a machine that has just been started."""
    return Machine(tmp_path)


def test_cpus_over_the_last_seconds(node: Machine) -> None:
    """The part that was busy since the sample of ten seconds ago, and nothing before there was half a second."""
    node.now_s += 0.1
    assert node.use.cpu_ratio() is None
    node.now_s += 4.9
    node.ticks(busy=400, idle=100)
    assert node.use.cpu_ratio() == 0.8
    node.now_s += 10
    node.ticks(busy=500, idle=1000)
    assert node.use.cpu_ratio() == 0.1


def test_two_who_ask_see_the_same(node: Machine) -> None:
    """Who asks a moment later does not see only that moment, and samples are bounded."""
    for _ in range(1000):
        node.now_s += 0.05
        node.use.cpu_ratio()
    node.ticks(busy=50, idle=50)
    node.now_s += 1

    assert node.use.cpu_ratio() == node.use.cpu_ratio() == 0.5
    assert len(node.use._samples) <= KEPT_S / 0.5 + 2


def test_nobody_asked_for_long(node: Machine) -> None:
    """Then it is the mean since the last time."""
    node.now_s += 3600
    node.ticks(busy=100, idle=300)

    assert node.use.cpu_ratio() == 0.25


def test_memory_that_cannot_be_had_without_swapping(node: Machine) -> None:
    """It is a part of all memory; None on a machine without memory."""
    node.memory_of()
    assert node.use.memory_ratio() == 0.6
    node.memory_of(MemTotal=0, MemAvailable=0)
    assert node.use.memory_ratio() is None
