"""Reads cgroups v1 and v2, with cgroupfs and systemd names: of pods, of containers, and those that a policy file names.

The CPUs and memory of pods are those of their parent cgroup, never those of the daemon's own, which may be confined to
the reserved CPUs. `read_device` is here, too: a policy file names a device in place of a cgroup.
"""

import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from criproxy.host.files import entries, mounts, read_ids, read_number, read_once, read_text
from criproxy.model.attributes import STORED, Attribute
from criproxy.model.controls import DEFAULTS
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Applied

IO_LIMITS = "io.max"
_CONTROL_FILES = frozenset((*DEFAULTS, IO_LIMITS))
_FILE_OF_CONTROLLER = {"memory": "memory.high", "cpu": "cpu.weight", "io": "io.stat"}
"""Controller → the file by which a cgroup below the root shows that it has those of the controller."""
POD_PARENTS = ("kubepods.slice", "kubepods", ".")
"""The parent cgroup of pods: the kubelet's with the systemd and the cgroupfs driver, else the root."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The CPUs and NUMA nodes that a cgroup allows; None if it does not restrict them."""

    cpus: CpuSet | None
    mems: CpuSet | None
    path: Path | None
    """The cgroup with these sets."""


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """A possible mount of cpuset cgroups, and the parts of its files' names around the word cpus or mems."""

    root: Path
    prefix: str = "cpuset."
    suffix: str = ""

    def allowed(self, path: Path) -> Allowed | None:
        cpus = read_ids(path / f"{self.prefix}cpus{self.suffix}")
        if not cpus:  # an empty cgroup v1 set has not been written yet
            return None
        return Allowed(cpus, read_ids(path / f"{self.prefix}mems{self.suffix}") or None, path)


def read_allowed(host_root: Path, pods: str = "") -> Allowed:
    """Read the pods' parent cgroup below *host_root*; all None if no cpuset cgroup is mounted.

    It is *pods* or, where that has no cpuset, the nearest cgroup above it that has one; if empty, the usual one.
    """
    hierarchies = list(_hierarchies(host_root))
    places = [(each, each.root / parent) for each in hierarchies for parent in _parents(pods)]
    places += [(each, path) for each in hierarchies for path in _recorded_cgroups(host_root, each.root)]
    found = (hierarchy.allowed(path) for hierarchy, path in places)
    return next((allowed for allowed in found if allowed), Allowed(None, None, None))


def read_cgroup(host_root: Path, name: str) -> CpuSet | None:
    """Return the CPUs of the cgroup *name*: a path below the mount of the cpuset cgroups, or a whole one; None if none.

    The name may come from the cluster, and a path elsewhere lead to a volume of a pod, with a pipe or an endless file.

    Raises:
        CriproxyError: Its file has invalid content.
    """
    for hierarchy in _hierarchies(host_root):
        for path in (hierarchy.root / name.lstrip("/"), host_root / name.lstrip("/")):
            place = _resolved(path)
            if place and place.is_relative_to(hierarchy.root.resolve()) and (found := hierarchy.allowed(path)):
                return found.cpus
    return None


def _resolved(path: Path) -> Path | None:
    """Return *path* without links, as far as they end; None if it has characters that no path can have."""
    try:
        return Path(os.path.realpath(path))  # before Python 3.13, `resolve` raises RuntimeError for links in a loop
    except ValueError:
        return None


def _parents(pods: str) -> tuple[str, ...]:
    words = [word for word in pods.split("/") if word not in ("", "..")]
    return (*("/".join(words[:count]) for count in range(len(words), 0, -1)), *POD_PARENTS)


class ControlFiles(NamedTuple):
    """What `read_control_files` finds."""

    names: frozenset[str]
    """Of the files of cgroup v2 that classes set, those that containers have, or may have."""
    is_assumed: bool = False
    """Whether no cgroup shows the files of some controller yet, of which all count then."""


def read_control_files(host_root: Path, pods: str = "") -> ControlFiles | None:
    """Return which files of cgroup v2 containers have for classes; none with cgroup v1, None if that is unknown.

    A cgroup has a controller's files only if the one above it has enabled that controller. The runtime enables all for
    a container; before the kubelet's first start after a boot, no cgroup may have those of some controllers.
    """
    root = host_root / "sys/fs/cgroup"
    controllers = read_text(root / "cgroup.controllers")
    if controllers is None:
        return ControlFiles(frozenset()) if (root / "cpuset").is_dir() or (root / "memory").is_dir() else None
    unseen, found = _FILE_OF_CONTROLLER.keys() & controllers.split(), set[str]()
    for folder in _cgroups_to_check(root, pods):
        names = {*entries(folder)}
        seen = {controller for controller in unseen if _FILE_OF_CONTROLLER[controller] in names}
        unseen, found = unseen - seen, found | _files_of(seen, names)
        if not unseen:  # mostly after the first one: this is looked at every few seconds
            break
    return ControlFiles(frozenset(found | _files_of(unseen, _CONTROL_FILES)), bool(unseen))


def _files_of(controllers: AbstractSet[str], names: AbstractSet[str]) -> AbstractSet[str]:
    return {name for name in _CONTROL_FILES & names if name.partition(".")[0] in controllers}


def _cgroups_to_check(root: Path, pods: str) -> Iterator[Path]:
    """Yield the cgroups of all pods that there may be, then all others right below the *root*."""
    yield from (root / parent for parent in _parents(pods)[:-1])
    yield from (root / name for name in entries(root) if (root / name / "cgroup.procs").exists())


def deciding_files(host_root: Path, pods: str = "") -> list[Path]:
    """Return the files on which `read_allowed` depends, including those that do not exist yet."""
    parents = [(each, each.root / parent) for each in _hierarchies(host_root) for parent in _parents(pods)]
    files = [path / f"{each.prefix}{kind}{each.suffix}" for each, path in parents for kind in ("cpus", "mems")]
    return list(dict.fromkeys(files))


def _hierarchies(host_root: Path) -> Iterator[_Hierarchy]:
    unified: list[Path] = []
    for root, kind, options in mounts(host_root):
        if kind == "cpuset" or (kind == "cgroup" and "cpuset" in options):
            yield _Hierarchy(root, prefix="" if kind == "cpuset" or "noprefix" in options else "cpuset.")
        elif kind == "cgroup2":
            unified.append(root)
    # In a container, the mounts have other names than below the host root.
    yield _Hierarchy(host_root / "sys/fs/cgroup/cpuset")
    for root in [*unified, host_root / "sys/fs/cgroup"]:
        yield _Hierarchy(root, suffix=".effective")


def _recorded_cgroups(host_root: Path, hierarchy: Path) -> Iterator[Path]:
    """Yield the cgroup of a recorded machine and its parents, for a copy of /sys and /proc that has no others.

    A live /proc has a link `self` to the process that reads it: that would be our own cgroup, not that of pods.
    """
    if (host_root / "proc/self").is_symlink():
        return
    name = _recorded_name(host_root)
    path = hierarchy.joinpath(*(part for part in name.split("/") if part not in ("", "..")))
    while path != hierarchy:
        yield path
        path = path.parent


def _recorded_name(host_root: Path) -> str:
    for line in (read_text(host_root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if "cpuset" in controllers.split(",") or (number == "0" and not controllers and name != "/"):
            return name
    return read_text(host_root / "proc/self/cpuset") or ""


def read_device(host_root: Path, path: str) -> CpuSet | None:
    """Return the CPUs next to the device at *path* in sysfs, such as ``/sys/class/net/eth0``, or next to its parent.

    None if the path does not exist, or if neither the device nor any parent has a location.

    Raises:
        CriproxyError: A file has invalid content.
    """
    top = (host_root / "sys").resolve()
    place = _resolved(host_root / path.lstrip("/"))
    if place is None or not place.exists():
        return None
    while place != top and place.is_relative_to(top):
        if cpus := read_ids(place / "local_cpulist"):
            return cpus
        node = read_number(place / "numa_node")
        if node is not None and node >= 0:
            return read_ids(top / f"devices/system/node/node{node}/cpulist")
        place = place.parent
    return None


_READ_BYTES = 4096
"""Maximum size of a file of an attribute."""
_UNREAD: dict[str, Any] = {"cpus": NO_CPUS, "mems": NO_CPUS}
Contents = tuple[tuple[str, bytes], ...]
"""Files and what they have."""


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The cgroup of a container; with cgroup v1, those of the same path in the hierarchies of the controllers."""

    mount: str
    below: str
    """Its path below the mount or, with v1, below the folder of a controller."""
    unified: bool
    """Whether it is one of cgroup v2."""

    @property
    def path(self) -> str:
        """The folder of the cgroup with its cpuset."""
        return self.folder("cpuset")

    def folder(self, controller: str) -> str:
        """Return the folder of the cgroup with the files of a *controller*."""
        return f"{self.mount}/{self.below}" if self.unified else f"{self.mount}/{controller}/{self.below}"

    def read(self, attributes: tuple[Attribute[Any], ...] = STORED, *, written: bool = False) -> Applied:
        """Read *attributes*; the values of others are not set.

        Args:
            attributes: which ones; the file of one that is no cpuset may be missing.
            written: whether to read what was written instead of what is in effect: with v2, the parent may allow less,
                and empty means all it allows.

        Raises:
            OSError: The cpuset cannot be read; FileNotFoundError and ENODEV mean that the cgroup no longer exists.
        """
        return Applied(**_UNREAD | {each.name: self._value(each, written=written) for each in attributes})

    def contents(self, attributes: tuple[Attribute[Any], ...]) -> Contents:
        """Return what the files of *attributes* have that are read for what is in effect.

        Raises:
            OSError: one of them cannot be read.
        """
        return tuple([(path := self.file(each), read_once(path, _READ_BYTES)) for each in attributes])

    def file(self, attribute: Attribute[Any], *, written: bool = False) -> str:
        """Return the path of the file of *attribute*; *written* as for `read`."""
        name = ((written and attribute.written) or attribute.v2) if self.unified else attribute.v1
        return f"{self.folder(attribute.controller)}/{name}"

    def _value(self, attribute: Attribute[Any], *, written: bool) -> Any:  # noqa: ANN401 (of any attribute)
        """Return a value; None if unknown, since there is no controller or the cgroup no longer exists."""
        try:
            return attribute.parse(read_once(self.file(attribute, written=written), _READ_BYTES).decode())
        except (OSError, IndexError):
            if attribute.is_cpuset:
                raise
            return None


def have_contents(contents: Contents) -> bool:
    """Whether the files still have these contents; False if one of them cannot be read."""
    try:
        return all(read_once(path, _READ_BYTES) == content for path, content in contents)
    except OSError:
        return False


def find_group(host_root: Path, pid: int, container_id: str) -> ContainerGroup:
    """Find the cgroup of the container whose first process is *pid*.

    A process may be in a nested cgroup below the container's, which is the first one with the ID in its name. Those
    below it have any names.

    Raises:
        OSError: The process no longer exists.
        LookupError: The process is in no cgroup of that container, since the PID has been reused.
    """
    paths = paths_by_controller((host_root / f"proc/{pid}/cgroup").read_bytes().decode(errors="replace"))
    unified = "cpuset" not in paths
    path = paths.get("", "") if unified else paths["cpuset"]
    for part in reversed((Path(path), *Path(path).parents)):
        if container_id in part.name:
            return ContainerGroup(str(host_root / "sys/fs/cgroup"), str(part).lstrip("/"), unified)
    raise LookupError(f"process {pid} is in {path}, which is not a cgroup of container {container_id}")


def paths_by_controller(text: str) -> dict[str, str]:
    """Return the cgroups in the *text* of /proc/PID/cgroup by controller, that of cgroup v2 under an empty name."""
    lines = (line.split(":", 2) for line in text.removesuffix("\n").split("\n"))  # paths may have other ends of lines
    return {controller: path for _, controllers, path in lines for controller in controllers.split(",")}


def group_at(host_root: Path, path: str) -> ContainerGroup | None:
    """Return the cgroup at *path* below the mount, even if it does not exist; None for an invalid path."""
    # Thousands of them are looked up every minute: paths would take most of the time.
    below, mount = path.lstrip("/"), f"{str(host_root).rstrip('/')}/sys/fs/cgroup"
    if not below or ".." in below.split("/"):
        return None
    return ContainerGroup(mount, below, unified=not os.path.isdir(f"{mount}/cpuset"))  # noqa: PTH112


def has_processes(group: ContainerGroup) -> bool:
    """Whether *group*, or a cgroup below it, has processes; False if it no longer exists.

    With systemd in a container, all of its processes are in cgroups below that of the container.
    """
    # It cannot be read of one that is gone, nor of a threaded cgroup, whose processes are in the one above.
    return any(read_text(f"{folder}/cgroup.procs") for folder, _, _ in os.walk(group.path))
