"""CPUs that go offline, come online or are taken from the pods' cgroup while criproxy runs, on a made-up /sys."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.discovery.cgroup import deciding_files
from criproxy.model.cpuset import parse_cpuset
from criproxy.simulate.machines import machine
from tests.control import world as worlds
from tests.control.world import FAST, World, owner, sharer, situation
from tests.sysfs import write_sysfs

LIMIT_S = 60.0
MACHINE = machine(nodes=1, cores=4, threads=1)
ONLINE = "sys/devices/system/cpu/online"
PODS = "sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective"
MISSING = "pods cannot use some of the online CPUs"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, all online, and a runtime with the same; the machine is looked at every few milliseconds."""
    write_sysfs(tmp_path, MACHINE)
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=replace(FAST, drift_period_s=0.02)) as world:
        yield world


async def test_a_cpu_that_goes_offline_leaves_every_grant(world: World, tmp_path: Path) -> None:
    """Its owner gets another, those that share make room, and nobody is said to have changed a cpuset."""
    shared, owned = await world.run(sharer("shared")), await world.run(owner("owner", 1))
    assert (world.cpus(owned), world.cpus(shared)) == ("1", "0,2-3")

    write_sysfs(tmp_path, replace(MACHINE, cpus=parse_cpuset("0,2-3"), online_cpus=parse_cpuset("0,2-3")))

    await world.until(lambda: (world.cpus(owned), world.cpus(shared)) == ("2", "0,3"))
    assert world.counters.drift_found == 0
    assert any(event == "the machine has changed" for event in world.log.events())


async def test_a_cpu_that_comes_back_is_there_for_everybody(world: World, tmp_path: Path) -> None:
    """With cgroup v2 the pods have it at once; it is shared until somebody owns it."""
    shared = await world.run(sharer("shared"))
    write_sysfs(tmp_path, replace(MACHINE, cpus=parse_cpuset("0-2"), online_cpus=parse_cpuset("0-2")))
    await world.until(lambda: world.cpus(shared) == "0-2")

    write_sysfs(tmp_path, MACHINE)

    await world.until(lambda: world.cpus(shared) == "0-3")
    assert not any(MISSING in event for event in world.log.events())


async def test_a_cpu_that_comes_back_to_the_machine_only_is_reported(world: World, tmp_path: Path) -> None:
    """Cgroup v1 gives it back to no cpuset: somebody has to, and is told where."""
    shared = await world.run(sharer("shared"))
    write_sysfs(tmp_path, replace(MACHINE, cpus=parse_cpuset("0-2"), online_cpus=parse_cpuset("0-2")))
    await world.until(lambda: world.cpus(shared) == "0-2")

    (tmp_path / ONLINE).write_text("0-3\n")

    await world.poll(lambda: any(MISSING in event for event in world.log.events()))
    (keys,) = (keys for event, keys in world.log.lines if MISSING in event)
    assert (keys["cpus"], str(keys["cgroup"]).endswith("kubepods.slice")) == ("3", True)
    assert world.cpus(shared) == "0-2"


async def test_what_the_pods_cgroup_loses_leaves_every_grant(world: World, tmp_path: Path) -> None:
    """Somebody kept a CPU for the system; it is reported, because it is online."""
    shared = await world.run(sharer("shared"))

    (tmp_path / PODS).write_text("0-1\n")

    await world.until(lambda: world.cpus(shared) == "0-1")
    assert any(MISSING in event for event in world.log.events())


async def test_a_machine_that_cannot_be_read_changes_nothing(world: World, tmp_path: Path) -> None:
    """It is said, and read again until it can be read."""
    shared = await world.run(sharer("shared"))
    (tmp_path / PODS).write_text("9\n")
    await world.poll(lambda: any("cannot read its topology" in event for event in world.log.events()))
    assert world.cpus(shared) == "0-3"

    (tmp_path / PODS).write_text("0-2\n")

    await world.until(lambda: world.cpus(shared) == "0-2")


async def test_a_machine_that_is_as_before_again_can_be_read(world: World, tmp_path: Path) -> None:
    """Its files say what they said before, and nothing is wrong any more."""
    before = (tmp_path / PODS).read_text()
    (tmp_path / PODS).write_text("9\n")
    async with asyncio.timeout(LIMIT_S):
        await world.poll(lambda: any("cannot read" in notice.text for notice in situation(world.controller).notices))

        (tmp_path / PODS).write_text(before)

        await world.poll(lambda: not situation(world.controller).notices)


async def test_cpus_that_were_lost_before_the_start_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is smaller than its machine says so, and where."""
    smaller = replace(MACHINE, cpus=parse_cpuset("0-2"))
    write_sysfs(tmp_path, smaller)
    monkeypatch.setattr(worlds, "machine", lambda **_: smaller)

    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        (keys,) = (keys for event, keys in world.log.lines if MISSING in event)
        assert keys["cpus"] == "3"


def test_a_pods_cgroup_that_is_not_there_yet_is_watched_for(tmp_path: Path) -> None:
    """The kubelet may make it after criproxy has started."""
    files = {str(path.relative_to(tmp_path)) for path in deciding_files(tmp_path)}

    assert {PODS, "sys/fs/cgroup/cpuset/kubepods/cpuset.cpus"} <= files
