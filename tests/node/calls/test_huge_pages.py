"""A container that asks for huge pages may use the NUMA nodes that have them: a create from the kubelet's call on."""

from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import machine
from lab.kubelet.kubelet import PodSpec
from tests.node.world import GIB, World, owner

TWO = machine(nodes=2, cores=4, threads=1)
SIZES = {"2MB": 2 << 20, "1GB": GIB}
OPTIONS = {
    "static": {"reservedCpus": "0"},
    "topology-aware": {"reservedCpus": "0"},
    "balloons": {"reservedCpus": "0", "balloonTypes": [{"name": "a", "namespaces": ["*"]}]},
    "pools": {"reservedCpus": "0", "pools": [{"name": "a", "cpuLists": [{"cpuset": "1-2"}]}]},
}


def pages(host_root: Path, node: int, size: str, total: int, free: int) -> None:
    """What the kernel says of the huge pages of one size in one NUMA node."""
    folder = host_root / f"sys/devices/system/node/node{node}/hugepages/hugepages-{SIZES[size] >> 10}kB"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nr_hugepages").write_text(f"{total}\n")
    (folder / "free_hugepages").write_text(f"{free}\n")


def world_of(host_root: Path, policy: str = "static") -> World:
    """A node with two NUMA nodes, under one of the policies."""
    entry = BUILTIN[policy]
    return World(host_root, topology=TWO, policy=entry.build(entry.options.model_validate(OPTIONS[policy])))


async def mems_of(world: World, pod: PodSpec, **limits: int) -> str:
    """The memory nodes that the runtime got for a container with these limits, in pages of each size."""

    def limited(request: api.CreateContainerRequest) -> None:
        for size, size_bytes in SIZES.items():  # the kubelet names every size that the machine has
            limit = size_bytes * limits.get(f"of_{size}", 0)
            request.config.linux.resources.hugepage_limits.add(page_size=size, limit=limit)

    _, config = await world.create_as(pod, limited)
    return str(config.linux.resources.cpuset_mems)


@pytest.mark.parametrize("policy", OPTIONS)
async def test_the_nodes_of_its_huge_pages(tmp_path: Path, policy: str) -> None:
    """Of every policy, the memory of the new container includes the only node with pages, and explain says why."""
    for node in (0, 1):
        pages(tmp_path, node, "2MB", total=16 * node, free=16 * node)
    async with world_of(tmp_path, policy) as world:
        mems = await mems_of(world, owner("dpdk"), of_2MB=4)
        await world.booked()
        records = await world.controller.context.state.find_history("default/dpdk/main")
        said = [text for record in records for text in record.sentences]

    assert mems in ("1", "0-1")
    assert any("huge pages of 2 MiB" in text and "NUMA node" in text for text in said), said


async def test_none_are_asked_for(tmp_path: Path) -> None:
    """A limit of 0, which the kubelet sends for each size, changes nothing."""
    pages(tmp_path, 1, "2MB", total=16, free=16)
    async with world_of(tmp_path) as world:
        assert await mems_of(world, owner("web")) == "0"


@pytest.mark.parametrize("policy", OPTIONS)
async def test_pages_that_no_node_has(tmp_path: Path, policy: str) -> None:
    """No memory node helps: its memory stays where it would be without, and explain says what is missing."""
    for node in (0, 1):
        pages(tmp_path, node, "1GB", total=0, free=0)
    async with world_of(tmp_path, policy) as world:
        without = await mems_of(world, owner("web"))
        await world.kubelet.remove_pod(next(iter(world.controller.node.pods)))
        assert await mems_of(world, owner("vm"), of_1GB=1) == without
        await world.booked()
        records = await world.controller.context.state.find_history("default/vm/main")
        said = [text for record in records for text in record.sentences]

    assert "no NUMA node has huge pages of 1 GiB" in said


async def test_its_own_node_has_enough(tmp_path: Path) -> None:
    """Memory stays near its CPUs as long as there are free pages of that size, whatever other sizes there are."""
    pages(tmp_path, 0, "2MB", total=16, free=4)
    pages(tmp_path, 1, "2MB", total=16, free=16)
    pages(tmp_path, 1, "1GB", total=2, free=2)
    async with world_of(tmp_path) as world:
        assert await mems_of(world, owner("dpdk"), of_2MB=4) == "0"
        assert await mems_of(world, owner("vm"), of_1GB=1) == "0-1"


async def test_pages_in_use_and_pages_of_others_do_not_count(tmp_path: Path) -> None:
    """Neither what is not free, nor what an earlier container may still take, is there for the next one."""
    pages(tmp_path, 0, "2MB", total=16, free=3)
    pages(tmp_path, 1, "2MB", total=16, free=16)
    async with world_of(tmp_path) as world:
        assert await mems_of(world, owner("late"), of_2MB=4) == "0-1"
        pages(tmp_path, 0, "2MB", total=16, free=16)
        assert await mems_of(world, owner("one"), of_2MB=16) == "0"
        assert await mems_of(world, owner("two"), of_2MB=4) == "0-1"


async def test_what_is_not_known_keeps_it_from_no_pages(tmp_path: Path) -> None:
    """Where the kernel says nothing of pages of that size, memory comes from every node."""
    async with world_of(tmp_path) as world:
        assert await mems_of(world, owner("dpdk"), of_2MB=4) == "0-1"
