"""Removes what a containerd leaves behind that did not end in order: shims, containers, mounts, cgroups, sockets.

Everything is found by the folder of that containerd or by the ids of its containers, so nothing else is touched.
"""

import json
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

CONFIG = "config.toml"
"""The name of its configuration in the folder, which is an argument of its process."""
BUNDLES = "state/io.containerd.runtime.v2.task/k8s.io"
"""Below the folder: one folder for each running sandbox or container, named by its id."""

_CGROUPS = Path("/sys/fs/cgroup")
_GROUP = "k8s.io"
_END_TIMEOUT_S = 10.0


def remove(directory: Path) -> None:
    """Remove all that belongs to the containerd of *directory*, except the files in the folder itself.

    Raises:
        OSError, CalledProcessError: if something cannot be removed.
        TimeoutError: if a killed process does not go.
    """
    bundles = [bundle for bundle in (directory / BUNDLES).glob("*") if bundle.is_dir()]
    sockets = [shim_socket(bundle) for bundle in bundles]
    ids = {bundle.name for bundle in bundles}
    _kill(each for each in psutil.process_iter() if _is_shim_of(each, directory) or _cgroup_names(each) & ids)
    mounts = [each.mountpoint for each in _mounts() if Path(each.mountpoint).is_relative_to(directory)]
    for mount in sorted(mounts, reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=True)
    for socket in sockets:
        if socket:
            socket.unlink(missing_ok=True)
    _remove_cgroups(ids)


def end_daemon(directory: Path) -> None:
    """Kill the containerd of *directory*: whoever has started it cannot end it any more.

    Raises:
        TimeoutError: it does not go.
    """
    _kill(each for each in psutil.process_iter() if str(directory / CONFIG) in _words(each))


def file_system(directory: Path) -> str:
    """Return the kind of file system that *directory* lies on, such as ``ext4``."""
    holders = [each for each in _mounts() if directory.resolve().is_relative_to(each.mountpoint)]
    return str(max(holders, key=lambda each: len(each.mountpoint)).fstype)


def _words(process: psutil.Process) -> list[str]:
    """Return the command line of a process; nothing if it has gone meanwhile."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def _is_shim_of(process: psutil.Process, directory: Path) -> bool:
    words = _words(process)
    return bool(words) and "containerd-shim" in words[0] and str(directory / "containerd.sock") in words


def _cgroup_names(process: psutil.Process) -> set[str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{process.pid}/cgroup").read_text(errors="replace").splitlines()
        return {line.rpartition("/")[2] for line in lines}
    return set()


def _kill(found: Iterable[psutil.Process]) -> None:
    processes = list(found)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _, left = psutil.wait_procs(processes, timeout=_END_TIMEOUT_S)
    if left:
        raise TimeoutError(f"process {left[0].pid} does not end {_END_TIMEOUT_S:.0f} s after SIGKILL")


def shim_socket(bundle: Path) -> Path | None:
    """Return where the shim of a bundle listens: containerd 2 writes more about it, in another file."""
    address, bootstrap = bundle / "address", bundle / "bootstrap.json"
    if bootstrap.is_file():
        return Path(json.loads(bootstrap.read_text())["address"].removeprefix("unix://"))
    return Path(address.read_text().removeprefix("unix://")) if address.is_file() else None


def _mounts() -> Any:  # noqa: ANN401 (psutil's stubs name the type differently in each version)
    return psutil.disk_partitions(all=True)


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
