"""The runtimes to measure with: a private containerd, the embedded runtime as a process, or one that runs already."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.bench.processes import embedded_command, running
from lab.bench.ways import listener_pid
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import PrivateContainerd, available
from lab.emulator.runtime import IMAGE

CONTAINERD, EMBEDDED = "containerd", "embedded"
_NODES = Path("/sys/devices/system/node/online")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that answers, without containers."""

    name: str
    socket: Path
    pid: int
    image: str
    cgroups: PodCgroups | None = None
    """Makes the parent cgroups of pods, where the runtime has real ones."""


def choose(asked: str) -> list[str]:
    """The runtimes for ``auto`` (all that can run here), ``containerd``, ``embedded`` or a socket's path.

    Raises:
        ValueError: if it is none of them, or containerd cannot run here.
    """
    problem = available()
    if asked == "auto":
        return [EMBEDDED] if problem else [CONTAINERD, EMBEDDED]
    if asked == CONTAINERD and problem:
        raise ValueError(f"no private containerd here: {problem}; --runtime embedded needs nothing")
    if asked in (CONTAINERD, EMBEDDED) or Path(asked).is_socket():
        return [asked]
    raise ValueError(f"{asked!r} is neither auto, containerd, embedded nor the path of a runtime's socket")


@contextmanager
def started(name: str, directory: Path) -> Iterator[Runtime]:
    """Run the runtime *name* while the block lasts; sockets and logs lie in *directory*."""
    if name == CONTAINERD:
        with PrivateContainerd() as daemon:
            yield Runtime(name, daemon.socket, daemon.pid, IMAGE, daemon.cgroups)
    elif name == EMBEDDED:
        socket = directory / "runtime.sock"
        with running(embedded_command(socket, _cpus(), _mems()), directory / "runtime.log", notifies=False) as process:
            yield Runtime(name, socket, process.pid, IMAGE)
    else:
        yield Runtime(name, Path(name), listener_pid(Path(name)), IMAGE)


def _cpus() -> str:
    """The CPUs of this machine, so that criproxy, which reads the same machine, asks for none that is missing."""
    return ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))


def _mems() -> str:
    return _NODES.read_text().strip() if _NODES.exists() else "0"
