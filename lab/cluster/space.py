"""Namespaces of the cluster's own, of which nothing is left however it ends: network, mounts, processes.

The cluster is one process in them, and the kernel ends all others with it. A keeper outside removes what has no
namespace, the cgroups and the folder, also if this process is killed: ``python -m lab.cluster.space FOLDER``.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from criproxy.process.tether import python, tethered
from lab.containerd.cgroups import PodCgroups

ADDRESS = "172.31.0.1"
"""Of the machine, in its own network."""
SERVICE_ADDRESS = "10.96.0.1"
"""Where pods look for the API server, whose port is there 443."""
POD_NETWORK = "10.88.0.0/16"
_PREFIX = "criproxy-cluster-"
END_S = 20.0
_NETWORK = (
    "ip link set lo up",
    f"ip address add {ADDRESS}/32 dev lo",
    f"ip address add {SERVICE_ADDRESS}/32 dev lo",
)
_KUBELET = "/var/lib/kubelet"
"""The kubelet's plugins look for it here, whatever its root directory is."""


def run(arguments: Sequence[str]) -> int:
    """Run ``python -m lab.cluster --inside FOLDER ARGUMENT…`` in namespaces of its own; return its exit status.

    SIGINT and SIGTERM end everything in them at once.
    """
    with own_folder() as folder:
        command = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
        inside = python("lab.cluster", "--inside", str(folder), *arguments)
        # No process group of the terminal's: an interrupt there is for us alone.
        with subprocess.Popen(tethered([*command, *inside]), process_group=0, stdin=subprocess.DEVNULL) as process:
            former = {each: signal.signal(each, _leave) for each in (signal.SIGINT, signal.SIGTERM)}
            try:
                return process.wait()
            except SystemExit:
                print("cluster: ends", file=sys.stderr)
                raise
            finally:
                for number, handler in former.items():
                    signal.signal(number, handler)
                process.kill()


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


@contextmanager
def own_folder() -> Iterator[Path]:
    """A new folder and the cgroups of its name, which are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    folder.chmod(0o755)  # pods that are not root use it
    command = python("lab.cluster.space", str(folder))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as keeper:
        yield folder
        keeper.communicate()
    if keeper.returncode:
        raise RuntimeError(f"cluster: {folder} or cgroups of this name are left; see above")


def remove(folder: Path) -> None:
    """Remove what is left of the cluster of *folder*, as soon as its processes have ended.

    Raises:
        OSError: it cannot be removed, such as a cgroup that still has processes.
    """
    deadline = time.monotonic() + END_S
    cgroups = PodCgroups(f"/{folder.name}")
    while True:
        try:
            cgroups.remove()
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)  # the kernel is about to end them, and tells nobody
    shutil.rmtree(folder)


def enter(folder: Path, logs: Path) -> None:
    """Prepare the namespaces, in which this process is: its network, and places that programs have fixed names for.

    ``/run`` and ``/var/log`` are empty, ``/var/lib/kubelet`` is a folder below *folder*, and what is written below
    ``/var/lib`` and ``/dev`` is there only for us. The logs of pods are in ``pods`` below *logs*.
    """
    for line in _NETWORK:
        _do(*line.split())
    for path in ("/run", "/var/log"):
        _do("mount", "-t", "tmpfs", "none", path)
    (logs / "pods").mkdir()
    Path("/var/log/pods").mkdir()
    _do("mount", "--bind", str(logs / "pods"), "/var/log/pods")
    upper, work, kubelet = (folder / f"mounts/{name}" for name in ("upper", "work", "kubelet"))
    for each in (upper, work, kubelet):
        each.mkdir(parents=True)
    (upper / "kubelet").mkdir()
    _do("mount", "-t", "overlay", "none", "-o", f"lowerdir=/var/lib,upperdir={upper},workdir={work}", "/var/lib")
    _do("mount", "--bind", str(kubelet), _KUBELET)
    _make_dev(folder)
    (folder / "tmp").mkdir()
    tempfile.tempdir = str(folder / "tmp")
    os.environ["TMPDIR"] = tempfile.tempdir


def _make_dev(folder: Path) -> None:
    """Let nodes that are made in ``/dev`` be there only for us; they are in memory, where device nodes are allowed."""
    own = folder / "mounts/dev"
    own.mkdir()
    _do("mount", "-t", "tmpfs", "none", str(own))
    for each in ("upper", "work"):
        (own / each).mkdir()
    _do("mount", "-t", "overlay", "none", "-o", f"lowerdir=/dev,upperdir={own}/upper,workdir={own}/work", "/dev")
    for kind, path in (("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")):
        Path(path).mkdir(exist_ok=True)
        _do("mount", "-t", kind, "none", path)


def show(folder: Path, at: Path) -> None:
    """Let *folder* be seen at another path, too, by those who cannot pass a folder above it: as a pod's mount does."""
    at.mkdir()
    _do("mount", "--bind", str(folder), str(at))


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")


def missing() -> str | None:
    """Why there can be no such namespaces here; None if there can."""
    if os.geteuid() != 0:
        return "the cluster needs root, for namespaces and containers"
    if absent := [name for name in ("unshare", "ip", "mount", "openssl") if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)} (packages util-linux, iproute2, mount, openssl)"
    return None


def main() -> None:
    """Wait until whoever has made the folder has ended or closes our standard input, and remove what is left."""
    sys.stdin.buffer.read()
    folder = Path(sys.argv[1])
    if folder.exists():
        remove(folder)


if __name__ == "__main__":
    main()
