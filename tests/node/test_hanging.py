"""Drivers and kubelets that hang: creates are answered with what is known, nobody else waits, and status says so."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.devices.device_rules import KubeletFiles
from criproxy.host.cards import find_cards
from criproxy.node.devices import evidence as scanning
from criproxy.node.devices import kubelet as module
from criproxy.node.devices.evidence import EvidenceGatherer
from criproxy.node.devices.kubelet import Kubelet
from tests.allocations import Allocated, Allocations
from tests.gates import Gate
from tests.node.devices.test_guard import RULES, VOID, Podresources, create, envs, host, knows, world
from tests.node.devices.test_guard_faults import wrong
from tests.node.world import FAST, World

ALL = "NVIDIA_VISIBLE_DEVICES=all"
INFORMATION = "proc/driver/nvidia/gpus/0000:1b:00.0/information"


@pytest.fixture(autouse=True)
def _let_go(tmp_path: Path) -> Iterator[None]:
    """At the end whatever reads a FIFO here comes back."""
    yield
    for path in tmp_path.rglob("*"):
        if path.is_fifo():
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            os.close(fd)


DRIVER_HANGS = replace(FAST.device_limits, drivers_s=1.0)
"""Nothing else needs a limit then."""


def hang(path: Path) -> None:
    """Let whoever opens *path* wait for ever, as a file of a driver that hangs does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


async def pool_is_free() -> None:
    """Others who need a thread get one at once, however many creates there were."""
    async with asyncio.timeout(60):
        await asyncio.gather(*(asyncio.to_thread(lambda: None) for _ in range(32)))


async def test_a_driver_that_hangs_at_the_start(tmp_path: Path) -> None:
    """Creates are answered with what the others tell, and the node is not ready; status says which file it is."""
    node = world(tmp_path, limits=DRIVER_HANGS)
    hang(tmp_path / INFORMATION)
    async with node, asyncio.timeout(60):
        knows(node, Podresources(main="GPU-a"))

        config = await create(node, ALL)
        knows(node, Podresources())
        hidden = [envs(await create(node, ALL)) for _ in range(12)]

        assert envs(config) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-a"}
        assert [device.host_path for device in config.devices] == ["/dev/nvidia0", "/dev/nvidiactl"]
        assert hidden == [VOID] * 12
        await pool_is_free()
        assert [INFORMATION in sentence for sentence in wrong(node)] == [True]
        assert INFORMATION in (node.controller.devices.problem or "")
        assert not node.counters.fallbacks
        assert node.counters.device_evidence["driver", "hanging"] == 1
        assert "a scan of devices hangs" in node.log.events()


async def test_a_driver_that_hangs_later(tmp_path: Path) -> None:
    """Cards that are known keep their names, so that nobody's card is lost and nobody sees more."""
    async with world(tmp_path, limits=DRIVER_HANGS) as node, asyncio.timeout(60):
        knows(node, Podresources(main="GPU-b"))
        assert len((await create(node, ALL)).devices) == 2
        hang(tmp_path / INFORMATION)
        (tmp_path / "dev/nvidia9").touch()
        knows(node, Podresources(main="GPU-b,GPU-new"))  # it is looked for

        config = await create(node, ALL)

        assert envs(config) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b,GPU-new"}
        assert [device.host_path for device in config.devices] == ["/dev/nvidia1", "/dev/nvidiactl"]
        await pool_is_free()
        assert wrong(node)


async def test_a_driver_that_comes_back_is_no_problem(tmp_path: Path) -> None:
    """As soon as its file can be read nothing is wrong, and the log says so at the next look."""
    node = world(tmp_path, limits=DRIVER_HANGS)
    hang(tmp_path / INFORMATION)
    async with node, asyncio.timeout(60):
        knows(node, Podresources(main="GPU-b"))
        await create(node, ALL)
        assert wrong(node)
        with (tmp_path / INFORMATION).open("w") as file:
            file.write("GPU UUID: \t GPU-b\nDevice Minor: \t 1\n")

        await node.poll(lambda: not wrong(node))

        assert node.controller.devices.problem is None


async def test_a_machine_that_hangs_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the look at it waits for, creates go on without."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    gate = Gate()

    def stuck(*_: object) -> object:
        loop.call_soon_threadsafe(asked.set)
        return gate.wait()

    monkeypatch.setattr(scanning, "find_cards", stuck)
    async with world(tmp_path, limits=replace(FAST.device_limits, scan_s=0.1)) as node, asyncio.timeout(60):
        knows(node, Podresources(main="GPU-a"))

        assert envs(await create(node, ALL)) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-a"}
        knows(node, Podresources())
        assert [envs(await create(node, ALL)) for _ in range(12)] == [VOID] * 12

        assert asked.is_set()
        await pool_is_free()
        assert len(wrong(node)) == 1
        assert node.controller.devices.problem
    gate.set()


FILES = KubeletFiles(socket="/k/sock", checkpoint="/k/checkpoint", timeout_s=0.2)
WEB = Allocated(pod="pod-0", pod_uid="uid-pod-0", resource="nvidia.com/gpu", ids=("GPU-b",), numa=1)


async def test_a_checkpoint_that_hangs_costs_one_create(tmp_path: Path) -> None:
    """Podresources decides, so that hiding goes on; the next pods do not wait at all."""
    kubelet = Allocations(tmp_path / "k/sock", tmp_path / "k/checkpoint")
    await kubelet.start()
    hang(kubelet.checkpoint)
    rules = replace(RULES, kubelet=replace(FILES, timeout_s=1.0))
    limits = replace(FAST.device_limits, scan_s=1.0)
    async with world(tmp_path, rules=rules, limits=limits) as node, asyncio.timeout(60):
        kubelet.entries = [replace(WEB, pod=f"pod-{number}", pod_uid=f"u{number}") for number in range(3)]
        for number in range(3):
            if number == 1:  # to wait from here on would outlast the test
                source = node.controller.devices.evidence.of(rules)
                assert isinstance(source, Kubelet)
                source.files = replace(source.files, timeout_s=3600.0)
            assert envs(await create(node, ALL)) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        await pool_is_free()
        assert ["/k/checkpoint" in sentence for sentence in wrong(node)] == [True]
    await kubelet.stop()


async def test_podresources_that_hangs_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says so as soon as a create has waited in vain, and so does status; later pods wait no second more."""
    monkeypatch.setattr(module, "SURELY_S", 0.0)
    kubelet = Allocations(tmp_path / "k/sock", tmp_path / "k/checkpoint")
    await kubelet.start()
    kubelet.answers.clear()
    rules = replace(RULES, kubelet=FILES)
    async with world(tmp_path, rules=rules) as node, asyncio.timeout(60):
        await create(node, ALL)

        assert ("the kubelet does not report what it allocated", "podresources") in [
            (event, keys.get("source")) for event, keys in node.log.lines
        ]
        # It hangs, and it has never answered.
        assert ["podresources" in sentence for sentence in wrong(node)] == [True, True]
        source = node.controller.devices.evidence.of(rules)
        assert isinstance(source, Kubelet)
        source.files = replace(source.files, timeout_s=3600.0)
        await create(node, ALL)

        kubelet.answers.set()
        await node.poll(lambda: not wrong(node))
    await kubelet.stop()


async def test_a_rule_that_does_not_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is over every card is hidden, and the rule is not tried again."""
    tried = list[object]()

    async def stuck(*arguments: object) -> object:
        tried.append(arguments)
        return await asyncio.Event().wait()

    monkeypatch.setattr(EvidenceGatherer, "gather", stuck)
    host(tmp_path)
    node = World(tmp_path, settings=replace(FAST, devices=RULES, handler_timeout_s=0.3))
    async with node, asyncio.timeout(60):
        knows(node, Podresources(main="GPU-b"))
        await node.poll(lambda: node.controller.ready)  # the time of the create is for the rule alone

        assert envs(await create(node, ALL)) == VOID

        assert len(tried) == 1
        assert any("the device rules failed" in sentence for sentence in wrong(node))


async def test_a_part_of_a_card_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as no node, driver or specification comes or goes, the machine has the cards that it had."""
    looks = list[object]()

    def counted(*arguments: Any) -> object:  # noqa: ANN401 (those of `find_cards`)
        looks.append(arguments)
        return find_cards(*arguments)

    monkeypatch.setattr(scanning, "find_cards", counted)
    async with world(tmp_path) as node:
        knows(node, Podresources(main="MIG-1"))
        for _ in range(3):
            await create(node, ALL)
        before = len(looks)
        await create(node, ALL)
        assert len(looks) == before

        (tmp_path / "dev/nvidia2").touch()
        await create(node, ALL)

        assert len(looks) == before + 1
