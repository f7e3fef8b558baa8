"""Real machines are read as hwloc reads them."""

import json
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from criproxy.discovery import discover

WANTED = re.compile(r"cpu/online|cpu\d+/online|/topology/(core_cpus|thread_sib|physical)|/node/|mounts|cgroup")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a folder in memory where there is one: thousands of tiny files are slow elsewhere."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def test_snapshots(shared_dir: Path, scratch: Path) -> None:
    """Online CPUs, NUMA nodes with memory, cores and packages agree on every snapshot."""
    archives = sorted((shared_dir / "topologies/snapshots").glob("*.tar.xz"))
    differing = {}
    for archive in archives:
        name = archive.name.removesuffix(".tar.xz")
        truth = json.loads((shared_dir / f"topologies/expected/{name}.json").read_text())
        unpack(archive, scratch / name)
        differing[name] = [key for key, got in read(scratch / name).items() if got not in truths(key, truth)]

    assert len(archives) >= 16
    assert {name: keys for name, keys in differing.items() if keys} == {}


def unpack(archive: Path, root: Path) -> None:
    """Unpack CPUs, nodes, mounts and cgroups: the caches and devices beside them are most of the files."""
    with tarfile.open(archive) as snapshot:
        wanted = [member for member in snapshot if WANTED.search(member.name)]
        snapshot.extractall(root, members=wanted, filter="tar")


def read(root: Path) -> dict[str, Any]:
    """What is discovered, in the form of the truth."""
    topology = discover(root)
    return {
        "online_cpus": sorted(topology.online_cpus),
        "numa_nodes": [(node.id, sorted(node.cpus), node.memory_bytes) for node in topology.nodes],
        "cores": groups(core.cpus for core in topology.cores),
        "packages": [(package.id, sorted(package.cpus)) for package in topology.packages],
    }


def truths(key: str, truth: dict[str, Any]) -> list[Any]:
    """The accepted answers: hwloc's, or the kernel's own where they differ."""
    found = [truth[name] for name in (key, f"{key}_by_kernel_siblings", f"{key}_by_kernel_id") if truth.get(name)]
    match key:
        case "numa_nodes":
            return [[(node["id"], node["cpus"], node["memory_bytes"] or 0) for node in nodes] for nodes in found]
        case "packages":
            return [sorted((p["id"], p["cpus"]) for p in packages if p["id"] is not None) for packages in found]
        case "cores":
            return [groups(core["cpus"] if isinstance(core, dict) else core for core in cores) for cores in found]
    return found


def groups(sets: Iterable[Iterable[int]]) -> list[list[int]]:
    """Sets of CPUs in order of their first CPU."""
    return sorted(sorted(cpus) for cpus in sets)
