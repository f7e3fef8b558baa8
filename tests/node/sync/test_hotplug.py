"""CPUs that go offline, come online or are taken from the pods' cgroup while criproxy runs, on a made-up /sys."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.host.cgroup import deciding_files
from criproxy.host.machine import discover
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.simulate.hosts import machine
from lab.containerd.cgroups import CgroupDriver
from lab.kubelet.kubelet import PodSpec, sandbox_config
from tests.node import world as worlds
from tests.node.reconcile.test_controls_client import policy
from tests.node.world import FAST, NO_LOOKS, World, owner, refusal, sharer, situation
from tests.sysfs import write_sysfs

CLASSES = "classes: {a: {for: {namespaces: ['*']}, cpu: {uclampMax: 80}, memory: {high: 1Mi}}}"
MACHINE = machine(nodes=1, cores=4, threads=1)
ONLINE = "sys/devices/system/cpu/online"
PODS = "sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective"
MISSING = "pods cannot use some of the online CPUs"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, all online, and a runtime with the same; the machine is looked at every few milliseconds."""
    write_sysfs(tmp_path, MACHINE)
    async with World(tmp_path, settings=replace(FAST, drift_period_s=0.02)) as world:
        yield world


async def test_a_cpu_that_goes_offline_leaves_every_grant(world: World, tmp_path: Path) -> None:
    """Its owner gets another, those that share make room, and nobody is said to have changed a cpuset.

    When it comes back the pods have it at once, with cgroup v2; it is shared until somebody owns it.
    """
    shared, owned = await world.run(sharer("shared")), await world.run(owner("owner", 1))
    assert (world.cpus(owned), world.cpus(shared)) == ("1", "0,2-3")

    write_sysfs(tmp_path, replace(MACHINE, cpus=parse_cpuset("0,2-3"), online_cpus=parse_cpuset("0,2-3")))

    await world.until(lambda: (world.cpus(owned), world.cpus(shared)) == ("2", "0,3"))
    assert world.counters.drift_found == 0
    assert "the machine has changed" in world.log.events()

    write_sysfs(tmp_path, MACHINE)
    await world.until(lambda: (world.cpus(owned), world.cpus(shared)) == ("2", "0-1,3"))
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


async def test_a_machine_that_cannot_be_read_changes_nothing(world: World, tmp_path: Path) -> None:
    """It is said, and read again until it can be read, also where its files say what they said before."""
    shared, before = await world.run(sharer("shared")), (tmp_path / PODS).read_text()
    for after, cpus in ((before, "0-3"), ("0-2\n", "0-2")):
        (tmp_path / PODS).write_text("9\n")
        await world.poll(lambda: any("cannot read" in notice.text for notice in situation(world.controller).notices))
        assert any("cannot read its topology" in event for event in world.log.events())
        assert world.cpus(shared) == "0-3"

        (tmp_path / PODS).write_text(after)
        await world.poll(lambda: not situation(world.controller).notices)
        await world.until(lambda cpus=cpus: world.cpus(shared) == cpus)  # type: ignore[misc]


async def test_cpus_that_were_lost_before_the_start_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is smaller than its machine says so, and where."""
    smaller = replace(MACHINE, cpus=parse_cpuset("0-2"))
    write_sysfs(tmp_path, smaller)
    monkeypatch.setattr(worlds, "machine", lambda **_: smaller)

    async with World(tmp_path) as world:
        (keys,) = (keys for event, keys in world.log.lines if MISSING in event)
        assert keys["cpus"] == "3"


def test_a_pods_cgroup_that_is_not_there_yet_is_watched_for(tmp_path: Path) -> None:
    """The kubelet may make it after criproxy has started."""
    files = {str(path.relative_to(tmp_path)) for path in deciding_files(tmp_path)}

    assert {PODS, "sys/fs/cgroup/cpuset/kubepods/cpuset.cpus"} <= files


LIMITED = "sys/fs/cgroup/{root}/cpuset.cpus.effective"


async def run_below(world: World, pod: PodSpec, root: str, driver: CgroupDriver = "cgroupfs") -> str:
    """Run the only container of *pod* as a kubelet with the option cgroupRoot does."""
    key, _ = await world.create_as(pod, config=sandbox_config(pod, root, driver=driver))
    await world.kubelet.start(key)
    return key


@pytest.mark.parametrize(
    ("root", "driver", "cgroup"),
    [
        pytest.param("/limited", "cgroupfs", "limited/kubepods", id="cgroupfs"),
        pytest.param("/limited", "systemd", "limited/kubepods.slice", id="systemd"),
        pytest.param("/limited", "cgroupfs", "limited", id="only-the-parent-says"),
    ],
)
async def test_the_cgroup_above_the_pods_that_a_sandbox_names(
    world: World, tmp_path: Path, root: str, driver: CgroupDriver, cgroup: str
) -> None:
    """With the kubelet's cgroupRoot, its CPUs are all that is granted, from the first create on and after a restart."""
    limited(tmp_path, cgroup, "0-2")

    owned = await run_below(world, owner("owner", 1), root, driver)
    shared = await run_below(world, sharer("shared"), root, driver)

    await world.until(lambda: (world.cpus(owned), world.cpus(shared)) == ("1", "0,2"))
    await refusal(run_below(world, owner("greedy", 2), root, driver), "but only 1 is available")

    await world.restart_known()
    assert format_cpuset(world.controller.node.topology.cpus) == "0-2"
    limited(tmp_path, cgroup, "0-1")
    await world.until(lambda: world.cpus(shared) == "0")


def limited(host: Path, cgroup: str, cpus: str) -> None:
    """Give the cgroup *cgroup* only the CPUs *cpus*."""
    file = host / LIMITED.format(root=cgroup)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{cpus}\n")


def notices(world: World) -> list[str]:
    """The texts of the notices about pods below different cgroups."""
    return [each.text for each in situation(world.controller).notices if each.kind == "pods-cgroup" and each.wrong]


async def test_a_pod_below_another_cgroup_does_not_shrink_the_machine(world: World, tmp_path: Path) -> None:
    """What runs stays where it is, also after a restart; the pod is refused with the names of both cgroups."""
    limited(tmp_path, "small", "0-1")
    owned, shared = await run_below(world, owner("owner", 2), "/"), await run_below(world, sharer("shared"), "/")
    assert (world.cpus(owned), world.cpus(shared)) == ("1-2", "0,3")

    with pytest.raises(RuntimeCallError, match=r"below /small/kubepods .CPUs 0-1.* below /kubepods .CPUs 0-3"):
        await run_below(world, sharer("other"), "/small")

    await world.restart_known()
    await world.controller.hotplug.check()
    assert format_cpuset(world.controller.node.topology.cpus) == "0-3"
    assert (world.cpus(owned), world.cpus(shared)) == ("1-2", "0,3")
    assert not any(MISSING in event for event in world.log.events())


async def test_pods_that_run_below_another_cgroup_are_reported(world: World, tmp_path: Path) -> None:
    """Their cgroup has lost CPUs since they were placed; the notice goes when it has them again, or they have ended."""
    limited(tmp_path, "small", "0-3")
    await run_below(world, sharer("shared"), "/")
    await run_below(world, sharer("other"), "/small")
    assert not notices(world)

    limited(tmp_path, "small", "0-1")

    (text,) = notices(world)
    assert "default/other is below /small/kubepods" in text
    assert "what /kubepods (CPUs 0-3" in text
    limited(tmp_path, "small", "0-3")
    assert not notices(world)


async def test_the_cgroup_of_the_pods_that_came_first_stays_after_a_restart(world: World, tmp_path: Path) -> None:
    """Most pods may be below another one by then: what runs is not moved, whatever the order of the pods."""
    limited(tmp_path, "large", "0-3")
    first = await run_below(world, sharer("first"), "/large")
    limited(tmp_path, "small", "0-3")
    await run_below(world, sharer("second"), "/small")
    await run_below(world, sharer("third"), "/small")
    limited(tmp_path, "small", "0-1")

    await world.restart_known()
    await world.controller.hotplug.check()

    assert world.cpus(first) == "0-3"
    assert format_cpuset(world.controller.node.topology.cpus) == "0-3"


async def test_the_machine_is_whole_again_when_the_pods_below_a_smaller_cgroup_have_ended(
    world: World, tmp_path: Path
) -> None:
    """A pod that waits for room below the usual cgroup gets it; no other create has to come first."""
    limited(tmp_path, "small", "0-1")
    await run_below(world, sharer("small"), "/small")
    (small,) = world.controller.node.pods
    await refusal(run_below(world, owner("waits", 2), "/"), "only 1 is available")
    shared = await run_below(world, sharer("shared"), "/")
    assert world.cpus(shared) == "0-1"
    assert "default/shared" in notices(world)[0]

    await world.kubelet.remove_pod(small)

    await world.until(lambda: world.cpus(shared) == "0-3")
    assert not notices(world)


async def test_which_files_classes_have_on_a_node_that_boots(tmp_path: Path) -> None:
    """What no cgroup shows yet may be there, and is looked for again before a create: no value is lost without need."""
    write_sysfs(tmp_path, MACHINE)
    root = tmp_path / "sys/fs/cgroup"
    (root / "cgroup.controllers").write_text("cpuset cpu memory\n")
    async with World(tmp_path, settings=NO_LOOKS, policy=policy(CLASSES), topology=discover(tmp_path)) as world:
        _, early = await world.create_as(sharer("early"))
        assert dict(early.linux.resources.unified) == {"cpu.uclamp.max": "80.00", "memory.high": f"{1 << 20}"}
        assert world.controller.node.pods_cgroup == "/kubepods"

        for name in ("memory.high", "cpu.weight", "cpuset.cpus.effective"):  # without uclamp
            (root / "kubepods" / name).parent.mkdir(exist_ok=True)
            (root / "kubepods" / name).write_text("0-3\n")
        _, late = await world.create_as(sharer("late"))
        assert dict(late.linux.resources.unified) == {"memory.high": f"{1 << 20}"}
