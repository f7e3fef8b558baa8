"""Machines that somebody names on a command line: a shape such as ``2s/4n/16c/2t``, or a copy of a host's /sys."""

import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from criproxy.errors import CriproxyError, UsageError
from criproxy.host.machine import inspect
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.hardware import Hardware
from criproxy.model.machine.topology import LOCAL_DISTANCE, REMOTE_DISTANCE, Core, NumaNode, Package, Topology

MAX_BYTES = 1 << 30
"""Unpacked: a copy of /sys is small, and an archive may say that it is huge."""
_PIECE_BYTES = 1 << 20


def unpack(archive: Path, folder: Path, wanted: Callable[[str], object]) -> None:
    """Write files, folders and links of *archive* (tar, also compressed) below *folder*.

    What leads out of *folder*, a link or a name, is left out; so is all that is no file, folder or link.

    Args:
        archive: the file.
        folder: exists; what it has is replaced.
        wanted: asked with the name of each member; what it does not want is left out.

    Raises:
        UsageError: it cannot be read or written, or has more than `MAX_BYTES`.
    """
    try:
        with tarfile.open(archive) as opened:
            _Unpacking(opened, folder.resolve()).run(wanted)
    except (OSError, EOFError, KeyError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise UsageError(
            f"{_why(error)}: it must be a copy of /sys and /proc, as a directory or a tar archive"
        ) from error


def _why(error: Exception) -> str:
    if isinstance(error, tarfile.ReadError) and not error.__context__ and "unexpected end" not in str(error):
        return "it is neither a directory nor an archive that tar can read"
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be read ({error.strerror})"
    if isinstance(error, EOFError | tarfile.ReadError):
        return "the archive ends too early: copy it once more"
    return "the archive is damaged: copy it once more"


class _Unpacking:
    """One archive on its way to a folder."""

    def __init__(self, archive: tarfile.TarFile, root: Path) -> None:
        self._archive = archive
        self._root = root
        self._left_bytes = MAX_BYTES
        self._links: list[Path] = []

    def run(self, wanted: Callable[[str], object]) -> None:
        """Write all that is wanted."""
        for member in self._archive:
            place = self._root / member.name.lstrip("/")
            if wanted(member.name) and self._is_inside(place.parent):
                self._write(member, place)
        for link in self._links:  # only now: what a link leads to may have become a link
            if not self._is_inside(link):
                link.unlink(missing_ok=True)

    def _is_inside(self, place: Path) -> bool:
        """Whether *place*, where its links really lead, is in the folder."""
        return Path(os.path.realpath(place)).is_relative_to(self._root)

    def _write(self, member: tarfile.TarInfo, place: Path) -> None:
        if member.isdir():
            if self._is_inside(place):
                place.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            self._make_room(place)
            place.symlink_to(member.linkname)
            self._links.append(place)
        elif (member.isreg() or member.islnk()) and (content := self._archive.extractfile(member)):
            self._take(member.size)
            self._make_room(place)
            with content, place.open("wb") as file:
                while piece := content.read(_PIECE_BYTES):
                    self._take(len(piece) if member.islnk() else 0)  # the archive says no size of a hard link
                    file.write(piece)

    def _make_room(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)

    def _take(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise UsageError(f"more than {MAX_BYTES >> 20} MiB unpacked")


GIB = 1 << 30
SHAPE = "2s/4n/16c/2t"
MAX_CPUS = 4096
_SHAPE = re.compile(r"([0-9]{1,4})s/([0-9]{1,4})n/([0-9]{1,4})c/([0-9]{1,4})t")
ACCELERATORS = ("0x0302", "0x0b40", "0x1200")
"""Classes of PCI functions: 3D controllers, coprocessors, processing accelerators."""
_VGA, _OF_GPUS = "0x0300", ("0x10de", "0x1002")
"""Some GPUs are for screens, too; those of other vendors are for screens only."""
_PARTS = ("sys/devices/", "sys/bus/pci/devices/", "sys/bus/dax/devices/", "sys/fs/cgroup/", "proc/")
"""What of a host is read; the rest of an archive stays there."""


def shaped(text: str) -> Topology:
    """A machine of sockets, NUMA nodes and cores, each in all, and threads of a core, such as ``2s/4n/16c/2t``.

    Raises:
        UsageError: it is no shape, or one that cannot be.
    """
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"the machine {text[:80]!r} must be a shape such as {SHAPE}: sockets, NUMA nodes, cores, threads"
        )
    sockets, nodes, cores, threads = map(int, found.groups())
    if not sockets or not threads or nodes % sockets or not nodes or cores % nodes or not cores:
        raise UsageError(
            f"the machine {text} cannot be: NUMA nodes must be a multiple of sockets, and cores one of NUMA nodes, "
            f"all counted in the whole machine as in {SHAPE}"
        )
    if cores * threads > MAX_CPUS:
        raise UsageError(f"the machine {text} has {cores * threads} CPUs, more than {MAX_CPUS}")
    return machine(nodes, cores // nodes, threads, packages=sockets)


def of_host(path: Path) -> Hardware:
    """The machine whose /sys is a copy in the folder *path*, or in the archive *path* (tar, also compressed).

    Raises:
        UsageError: there is no machine in it.
    """
    try:
        if path.is_dir():
            return inspect(path)
        with TemporaryDirectory(prefix="criproxy-host-") as folder:
            unpack(path, Path(folder), lambda name: any(part in f"{name}/" for part in _PARTS))
            inside = [Path(folder), *sorted(each for each in Path(folder).iterdir() if each.is_dir())]
            # The archive may have put a folder around that of the host.
            return inspect(next((each for each in inside if (each / "sys").is_dir()), Path(folder)))
    except CriproxyError as error:
        raise UsageError(f"{path} is not a host root: {error}") from error


def cards_of(hardware: Hardware) -> list[CpuSet]:
    """For each accelerator of a machine the NUMA nodes next to it; none where nobody knows."""
    topology, found = hardware.topology, list[CpuSet]()
    for device in hardware.pci:
        if device.class_id[:6] in ACCELERATORS or (device.class_id[:6] == _VGA and device.vendor in _OF_GPUS):
            known = device.local_cpus != topology.online_cpus
            near = topology.nodes_of(device.local_cpus) if known else frozenset[int]()
            found.append(frozenset({device.numa_node}) if device.numa_node in topology.node_by_id else near)
    return found


def machine(
    nodes: int = 1,
    cores: int = 4,
    threads: int = 2,
    *,
    packages: int | None = None,
    memory_bytes: int = 16 * GIB,
    allowed: CpuSet | None = None,
) -> Topology:
    """A regular machine whose CPUs are numbered as Linux does on a PC: first threads of all cores, then the second.

    Every core has a level 2 cache, every NUMA node a level 3 cache.

    Args:
        nodes: NUMA nodes.
        cores: cores of one NUMA node.
        threads: threads of one core.
        packages: sockets, over which the nodes are spread in order; one for each node where not given.
        memory_bytes: memory of one NUMA node.
        allowed: CPUs that pods may use, all where not given.
    """
    stride = nodes * cores
    every_core = [Core(i, frozenset(i + stride * thread for thread in range(threads))) for i in range(stride)]
    node_cpus = [
        frozenset(c + stride * t for t in range(threads) for c in range(i * cores, (i + 1) * cores))
        for i in range(nodes)
    ]
    online = frozenset(range(stride * threads))
    ids = range(nodes)
    sockets = packages or nodes
    socket_cpus = [[c for i, c in enumerate(node_cpus) if i * sockets // nodes == socket] for socket in range(sockets)]
    return Topology(
        cpus=online if allowed is None else online & allowed,
        mems=frozenset(range(nodes)),
        nodes=tuple(NumaNode(i, cpus, memory_bytes) for i, cpus in enumerate(node_cpus)),
        cores=tuple(every_core),
        packages=tuple(Package(i, frozenset().union(*sets)) for i, sets in enumerate(socket_cpus)),
        online_cpus=online,
        l2_groups=tuple(core.cpus for core in every_core),
        l3_groups=tuple(node_cpus),
        distances=tuple(tuple(LOCAL_DISTANCE if i == j else REMOTE_DISTANCE for j in ids) for i in ids),
    )
