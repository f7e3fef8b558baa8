"""The pools of real machines."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from criproxy.host import discover
from criproxy.model.machine.topology import Topology
from criproxy.placement.alloc.pools import build_pools
from criproxy.simulate.hosts import unpack

FILES = re.compile(
    r"/cpu/(online|isolated|possible|present|offline)|cpu\d+/online|/topology/|/node/|mounts|cgroup|cpuset"
)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a folder in memory where there is one: thousands of tiny files are slow elsewhere."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def unpacked(shared_dir: Path, scratch: Path, name: str) -> Topology:
    """The machine of a snapshot."""
    unpack(shared_dir / f"topologies/snapshots/{name}.tar.xz", scratch, FILES.search)
    return discover(scratch)


def levels(topology: Topology) -> dict[str, int]:
    """How many pools there are of each kind."""
    return Counter(
        " ".join(re.findall(r"[A-Za-z]+", pool.name.partition(" in ")[0])) for pool in build_pools(topology).pools
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("arm64-1cpu", {"the machine": 1}, id="one-cpu"),
        pytest.param("raptorlake-6p8e", {"the machine": 1}, id="desktop"),
        pytest.param("knl-snc4-hbm", {"the machine": 1, "NUMA node": 4}, id="memory-only-nodes"),
        pytest.param("haswell-offline-node0", {"the machine": 1, "socket": 1, "NUMA node": 1}, id="cpus-in-no-node"),
        pytest.param("opteron-4s8n-cgroup2", {"the machine": 1, "NUMA node": 2}, id="a-few-cpus-allowed"),
        pytest.param("multidie-4s16n", {"the machine": 1, "socket": 4, "die": 8, "NUMA node": 16}, id="dies"),
        pytest.param("xeon-2s-snc2-pmem4-isolated", {"the machine": 1, "socket": 2, "NUMA node": 4}, id="pmem"),
    ],
)
def test_pools(shared_dir: Path, scratch: Path, name: str, expected: dict[str, int]) -> None:
    """The levels are those of the machine."""
    assert levels(unpacked(shared_dir, scratch, name)) == expected
