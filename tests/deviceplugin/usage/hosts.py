"""A made-up /proc, and a daemon that keeps what the watcher says."""

from pathlib import Path

from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.usage.values import Grant


def container_id(name: str) -> str:
    """Return an id as runtimes make them, of hexadecimal digits."""
    return name.encode().hex().ljust(64, "0")


def put_process(root: Path, pid: int, container: str = "", start_ticks: int = 100) -> None:
    """Let a process be in a container; an empty one is none."""
    _put(root / f"proc/{pid}", pid, f"0::{_path(container, '/system.slice/x.service')}\n", start_ticks=start_ticks)


def put_exited_leader(root: Path, pid: int, *threads: tuple[int, str, str]) -> None:
    """Let the first thread of a process have exited, as cgroup v1 shows it; the others have a state and a container."""
    for folder, tid, state, container in (
        (root / f"proc/{pid}", pid, "Z", ""),
        *((root / f"proc/{pid}/task/{each[0]}", *each) for each in ((pid, "Z", ""), *threads)),
    ):
        path = _path(container, "/")
        _put(folder, tid, f"5:memory:{path}\n4:devices:{path}\n", state)


def _path(container: str, none: str) -> str:
    return f"/kubepods/burstable/pod1/{container_id(container)}" if container else none


def _put(folder: Path, tid: int, cgroup: str, state: str = "S", start_ticks: int = 100) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"{tid} (a) b) (c) {state} {'0 ' * 18}{start_ticks} 0 0\n")
    (folder / "cgroup").write_text(cgroup)


def grant(container: str, card: str = "npu0", memory_mib: int = 8192, cores: int = 0, **fields: object) -> Grant:
    """Return what a container with a vGPU has been given."""
    given: dict[str, object] = {
        "container_id": container_id(container),
        "namespace": "default",
        "pod": container,
        "container": "main",
        "pod_uid": container,
        "kind": "ali-npu",
        "resource": "criproxy.io/npu-8g",
        "ids": (f"{card}/npu-8g/0",),
        "cards": (card,),
        "quota": Quota(profile="npu-8g", memory_mib=memory_mib, cores_percent=cores),
    }
    return Grant(**given | fields)  # type: ignore[arg-type]
