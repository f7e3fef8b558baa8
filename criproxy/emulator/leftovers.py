"""Removes what a containerd leaves behind that did not end in order: shims, containers, mounts, cgroups, sockets.

Everything is found by the folder of that containerd or by the ids of its containers, so nothing else is touched.
"""

import ctypes
import json
import os
import select
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONFIG = "config.toml"
"""The name of its configuration in the folder, which is an argument of its process."""
BUNDLES = "state/io.containerd.runtime.v2.task/k8s.io"
"""Below the folder: one folder for each running sandbox or container, named by its id."""

_CGROUPS = Path("/sys/fs/cgroup")
_GROUP = "k8s.io"
_END_TIMEOUT_S = 10.0
_MNT_DETACH = 2


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/self/mountinfo."""

    point: Path
    kind: str


def remove(directory: Path) -> None:
    """Remove all that belongs to the containerd of *directory*, except the files in the folder itself.

    Raises:
        OSError: if something cannot be removed.
        TimeoutError: if a killed process does not go.
    """
    bundles = [bundle for bundle in (directory / BUNDLES).glob("*") if bundle.is_dir()]
    sockets = [shim_socket(bundle) for bundle in bundles]
    ids = {bundle.name for bundle in bundles}
    _kill(pid for pid in _pids() if _is_shim_of(pid, directory) or _cgroup_names(pid) & ids)
    for mount in sorted(_mounts_below(directory), reverse=True):
        _unmount(mount)
    for socket in sockets:
        if socket:
            socket.unlink(missing_ok=True)
    _remove_cgroups(ids)


def end_daemon(directory: Path) -> None:
    """Kill the containerd of *directory*: whoever has started it cannot end it any more.

    Raises:
        TimeoutError: it does not go.
    """
    _kill(pid for pid in _pids() if os.fsencode(directory / CONFIG) in _read(f"/proc/{pid}/cmdline").split(b"\0"))


def file_system(directory: Path) -> str:
    """Return the kind of file system that *directory* lies on, such as ``ext4``."""
    resolved = directory.resolve()
    holders = [mount for mount in _mounts() if resolved.is_relative_to(mount.point)]
    return max(holders, key=lambda mount: len(mount.point.parts)).kind


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _read(path: str) -> bytes:
    """Return a file of /proc; nothing if the process has gone meanwhile."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _is_shim_of(pid: int, directory: Path) -> bool:
    words = _read(f"/proc/{pid}/cmdline").split(b"\0")
    return b"containerd-shim" in words[0] and os.fsencode(directory / "containerd.sock") in words


def _cgroup_names(pid: int) -> set[str]:
    lines = _read(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines()
    return {line.rpartition("/")[2] for line in lines}


def _kill(pids: Iterable[int]) -> None:
    for pid in list(pids):
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            if not select.select([process], [], [], _END_TIMEOUT_S)[0]:
                raise TimeoutError(f"process {pid} does not end {_END_TIMEOUT_S:.0f} s after SIGKILL")
        except ProcessLookupError:
            continue
        finally:
            os.close(process)


def shim_socket(bundle: Path) -> Path | None:
    """Return where the shim of a bundle listens: containerd 2 writes more about it, in another file."""
    address, bootstrap = bundle / "address", bundle / "bootstrap.json"
    if bootstrap.is_file():
        return Path(json.loads(bootstrap.read_text())["address"].removeprefix("unix://"))
    return Path(address.read_text().removeprefix("unix://")) if address.is_file() else None


def _mounts() -> Iterator[Mount]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        yield Mount(Path(point), after.split()[0])


def _mounts_below(directory: Path) -> list[Path]:
    return [mount.point for mount in _mounts() if mount.point.is_relative_to(directory)]


def _unmount(point: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), _MNT_DETACH):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(point))


def _remove_cgroups(ids: set[str]) -> None:
    """Remove the groups of containers without a parent of their own, and containerd's group if it is empty then.

    All containerds of the machine use that group: without a container in it, this one leaves it to the others, which
    may be making their first group in it.
    """
    for tree in (_CGROUPS, *_CGROUPS.iterdir()):
        group = tree / _GROUP
        if ours := [group / name for name in ids if (group / name).is_dir()]:
            for each in ours:
                each.rmdir()
            with suppress(OSError):  # not empty, or removed by another one
                group.rmdir()
