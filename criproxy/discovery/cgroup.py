"""What the pods' parent cgroup lets them use: cgroup v1 and v2, cgroupfs and systemd names.

Never our own cgroup: the daemon may well be confined to the reserved CPUs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from criproxy.discovery.files import read_ids, read_text
from criproxy.model.cpuset import CpuSet

POD_PARENTS = ("kubepods.slice", "kubepods", ".")
"""Where pods live: the kubelet's parent with the systemd and the cgroupfs driver, else the root."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a cgroup allows; None where nothing is said."""

    cpus: CpuSet | None
    mems: CpuSet | None
    path: Path | None
    """The cgroup that says it."""


def read_allowed(host_root: Path) -> Allowed:
    """Read the pods' parent under *host_root*; all None where no cpuset cgroup is mounted."""
    for hierarchy, suffix in _hierarchies(host_root):
        for parent in POD_PARENTS:
            path = hierarchy / parent
            cpus = read_ids(path / f"cpuset.cpus{suffix}")
            if cpus:  # an empty cgroup v1 set is one that nobody has filled yet
                return Allowed(cpus, read_ids(path / f"cpuset.mems{suffix}") or None, path)
    return Allowed(None, None, None)


def _hierarchies(host_root: Path) -> Iterator[tuple[Path, str]]:
    """Folders where a cpuset hierarchy may be mounted, each with the end of the names of its files."""
    unified: list[Path] = []
    for line in (read_text(host_root / "proc/mounts") or "").splitlines():
        _, place, kind, options, *_ = [*line.split(), "", "", "", ""]
        if kind == "cgroup" and "cpuset" in options.split(","):
            yield host_root / place.lstrip("/"), ""
        elif kind == "cgroup2":
            unified.append(host_root / place.lstrip("/"))
    # Seen from a container, the mounts have other names than under the host root.
    yield host_root / "sys/fs/cgroup/cpuset", ""
    for folder in [*unified, host_root / "sys/fs/cgroup"]:
        yield folder, ".effective"
