"""The CPUs and memory of the pods' parent cgroup: cgroup v1 and v2, cgroupfs and systemd names.

It is never the daemon's own cgroup, which may be confined to the reserved CPUs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from criproxy.host.files import read_ids, read_text
from criproxy.model.cpuset import CpuSet

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

    Raises:
        CriproxyError: Its file has invalid content.
    """
    for hierarchy in _hierarchies(host_root):
        for path in (hierarchy.root / name.lstrip("/"), host_root / name.lstrip("/")):
            if found := hierarchy.allowed(path):
                return found.cpus
    return None


def _parents(pods: str) -> tuple[str, ...]:
    words = [word for word in pods.split("/") if word not in ("", "..")]
    return (*("/".join(words[:count]) for count in range(len(words), 0, -1)), *POD_PARENTS)


def deciding_files(host_root: Path, pods: str = "") -> list[Path]:
    """Return the files on which `read_allowed` depends, including those that do not exist yet."""
    parents = [(each, each.root / parent) for each in _hierarchies(host_root) for parent in _parents(pods)]
    files = [path / f"{each.prefix}{kind}{each.suffix}" for each, path in parents for kind in ("cpus", "mems")]
    return list(dict.fromkeys(files))


def _hierarchies(host_root: Path) -> Iterator[_Hierarchy]:
    unified: list[Path] = []
    for line in (read_text(host_root / "proc/mounts") or "").splitlines():
        _, place, kind, options, *_ = [*line.split(), "", "", "", ""]
        root, words = host_root / place.lstrip("/"), options.split(",")
        if kind == "cpuset" or (kind == "cgroup" and "cpuset" in words):
            yield _Hierarchy(root, prefix="" if kind == "cpuset" or "noprefix" in words else "cpuset.")
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
