"""What the kernel says of its scheduler, for classes with real-time and deadline policies."""

from pathlib import Path

from criproxy.host.cgroup import POD_PARENTS
from criproxy.host.files import read_number
from criproxy.model.machine.scheduler import Scheduler

_NAMES = {
    "runtime_us": "sched_rt_runtime_us",
    "shortest_period_us": "sched_deadline_period_min_us",
    "longest_period_us": "sched_deadline_period_max_us",
}


def read_scheduler(host_root: Path) -> Scheduler:
    """Read the limits of the machine below *host_root*; what cannot be read is the kernel's default."""
    kernel = {name: read_number(host_root / "proc/sys/kernel" / file) for name, file in _NAMES.items()}
    known = {name: value for name, value in kernel.items() if value is not None}
    return Scheduler(**known, pods_runtime_us=_pods_runtime_us(host_root / "sys/fs/cgroup/cpu"))


def _pods_runtime_us(mount: Path) -> int | None:
    """Return the limit of the pods' parent cgroup; one that does not exist yet has none, as every new one."""
    if read_number(mount / "cpu.rt_runtime_us") is None:
        return None
    found = (read_number(mount / parent / "cpu.rt_runtime_us") for parent in POD_PARENTS if parent != ".")
    return next((value for value in found if value is not None), 0)
