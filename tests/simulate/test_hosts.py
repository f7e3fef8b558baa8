"""Machines that are named on a command line."""

import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from criproxy.errors import UsageError
from criproxy.simulate.hosts import machine, of_host, shaped
from tests.sysfs import write_sysfs

MACHINE = machine(nodes=4, cores=2, threads=2, packages=2)


@pytest.mark.parametrize(
    ("shape", "packages", "nodes", "cores", "cpus"),
    [("2s/4n/16c/2t", 2, 4, 16, 32), ("1s/1n/1c/1t", 1, 1, 1, 1), ("2s/8n/192c/2t", 2, 8, 192, 384)],
)
def test_a_shape(shape: str, packages: int, nodes: int, cores: int, cpus: int) -> None:
    """Sockets, NUMA nodes and cores are those of the whole machine, threads those of a core."""
    made = shaped(shape)

    assert (len(made.packages), len(made.nodes), len(made.cores), len(made.cpus)) == (packages, nodes, cores, cpus)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("big", "must be a shape such as 2s/4n/16c/2t"),
        ("2s/4n/16c", "must be a shape"),
        ("2s/3n/6c/1t", "NUMA nodes must be a multiple of sockets"),
        ("2s/4n/6c/1t", "and cores one of NUMA nodes"),
        ("0s/0n/0c/1t", "cannot be"),
        ("1s/1n/4096c/2t", "has 8192 CPUs, more than 4096"),
    ],
)
def test_shapes_that_cannot_be(shape: str, said: str) -> None:
    """Each is a sentence."""
    with pytest.raises(UsageError, match=said):
        shaped(shape)


@pytest.mark.parametrize("around", ["", "host/"])
def test_a_copy_of_a_host(tmp_path: Path, around: str) -> None:
    """In a folder, and in an archive with or without a folder around it; what leads out of it is left there."""
    root = tmp_path / "root"
    write_sysfs(root, MACHINE)
    (root / "sys/devices/system/cpu/away").symlink_to("/etc")
    archive = tmp_path / "host.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, arcname=around or ".")
        member = tarfile.TarInfo("../proc/escaped")
        tar.addfile(member, BytesIO())

    assert of_host(root).topology == of_host(archive).topology == MACHINE
    assert not (tmp_path / "proc").exists()
