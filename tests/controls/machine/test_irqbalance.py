"""irqbalance is told what it must leave alone, by a peer that speaks as irqbalance 1.9 does."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from criproxy.controls.core import Controls
from criproxy.controls.journal import Journal
from criproxy.controls.machine import irqbalance
from criproxy.model.controls import NOTHING_DESIRED, Desired, IrqClaim, Irqs
from criproxy.model.cpuset import parse_cpuset
from tests.controls.trees import KernelModel, Tree

DESIRED = Desired(irqs=Irqs(cpus="0-5", claims=(IrqClaim(names=("24", "25"), cpus="6-7"),)))


@dataclass
class Irqbalance:
    """Answers ``setup``, and takes ``settings``; each request has its own connection."""

    irqs: list[int] = field(default_factory=list)
    cpus: str = ""
    requests: list[str] = field(default_factory=list)
    silent: bool = False
    """Whether it only accepts connections, as while it looks at the machine again."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one request."""
        request = (await reader.read(4096)).decode()
        self.requests.append(request)
        if self.silent:
            await reader.read()
        elif request == "setup":
            banned = "".join(f"IRQ {number} LOAD 0 DIFF 0 CLASS 0 " for number in self.irqs)
            mask = sum(1 << cpu for cpu in parse_cpuset(self.cpus))
            writer.write(f"SLEEP 10 {banned}BANNED {mask:08x}".encode())
        elif found := re.fullmatch(r"settings cpus (.*)", request):
            self.cpus = "" if found[1] == "NULL" else found[1]
        elif found := re.fullmatch(r"settings ban irqs (.*)", request):
            self.irqs = [] if found[1] == "NONE" else [int(word) for word in found[1].split()]
        writer.close()


@asynccontextmanager
async def running(tree: Tree, peer: Irqbalance, number: int) -> AsyncIterator[None]:
    """Let it serve where process *number* does; short paths only."""
    path = tree.root / f"run/irqbalance/irqbalance{number}.sock"
    path.parent.mkdir(parents=True, exist_ok=True)
    server = await asyncio.start_unix_server(peer.answer, path)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
        path.unlink()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine with eight CPUs."""
    tree = Tree(tmp_path)
    tree.irqs(4, 8)
    tree.cpus(8)
    return tree


@pytest.fixture
def controls(tree: Tree) -> Controls:
    """The program without its socket."""
    return Controls(tree.root, Journal.open(tree.root / "state", tree.root), (), KernelModel())


async def apply(controls: Controls, desired: Desired, *, look: bool = False) -> list[str]:
    """Do one pass; return the troubles."""
    controls.desire(desired, 1)
    await controls._apply_layout(look)
    return [trouble.text for trouble in controls.answer().troubles]


async def test_it_is_told_and_left_as_it_was(tree: Tree, controls: Controls) -> None:
    """CPUs that are not for all, and interrupts that belong to some; what was banned before stays so."""
    peer = Irqbalance(irqs=[30], cpus="2")
    async with running(tree, peer, 7):
        assert await apply(controls, DESIRED) == []
        assert (peer.cpus, peer.irqs) == ("6-7", [24, 25, 30])

        assert await apply(controls, NOTHING_DESIRED) == []
        assert (peer.cpus, peer.irqs) == ("2", [30])
    assert controls.is_put_back


async def test_it_is_told_again_after_it_has_started_again(
    tree: Tree, controls: Controls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look finds that it has forgotten; while it runs on, it is asked again only after it had time to obey."""
    first, second = Irqbalance(), Irqbalance()
    async with running(tree, first, 7):
        await apply(controls, DESIRED)
        first.requests.clear()
        await apply(controls, DESIRED, look=True)
        assert first.requests == []
        monkeypatch.setattr(irqbalance, "_APPLIES_S", 0.0)
        assert await apply(controls, DESIRED, look=True) == []
        assert first.requests == ["setup"]
    async with running(tree, second, 8):
        assert await apply(controls, DESIRED, look=True) == []
        assert (second.cpus, second.irqs) == ("6-7", [24, 25])
    assert controls.answer().drift == 1


async def test_one_that_does_not_answer_keeps_nothing_waiting(tree: Tree, controls: Controls) -> None:
    """It is said, and interrupts have their CPUs."""
    peer = Irqbalance(silent=True)
    async with running(tree, peer, 7):
        (trouble,) = await apply(controls, DESIRED)

    assert trouble == f"cannot read {tree.root}/run/irqbalance: timed out"
    assert tree.get("proc/irq/26/smp_affinity_list") == "0-5"


async def test_one_that_ends_is_forgotten(tree: Tree, controls: Controls) -> None:
    """Nothing is to be put back then."""
    async with running(tree, Irqbalance(), 7):
        await apply(controls, DESIRED)

    assert await apply(controls, DESIRED, look=True) == []
    assert await apply(controls, NOTHING_DESIRED) == []
    assert controls.is_put_back


async def test_a_container_does_not_pass_for_it(tree: Tree, controls: Controls) -> None:
    """A trouble stops rollouts, and any pod can name its program so."""
    tree.put("proc/77/comm", "irqbalance")
    tree.put("proc/77/status", "Name:\tirqbalance\nNSpid:\t77\t1\nThreads:\t1")

    assert await apply(controls, DESIRED, look=True) == []


async def test_one_without_a_socket_is_said(tree: Tree, controls: Controls) -> None:
    """With what its administrator can write; only interrupts matter to it."""
    tree.put("proc/77/comm", "irqbalance")
    tree.put("proc/77/status", "Name:\tirqbalance\nNSpid:\t77\nThreads:\t1")

    (trouble,) = await apply(controls, DESIRED, look=True)
    assert trouble.startswith("irqbalance runs without a socket")
    assert "IRQBALANCE_BANNED_CPULIST" in trouble
    assert await apply(controls, NOTHING_DESIRED, look=True) == []
