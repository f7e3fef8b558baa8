"""Reads what classes can set on this machine: files of cgroups, frequencies, idle states, resctrl, the scheduler."""

import os
from collections.abc import Set as AbstractSet
from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.host.cgroup import IO_LIMITS, POD_PARENTS, read_control_files
from criproxy.host.cpus import CPUS
from criproxy.host.files import entries, read_number, read_text
from criproxy.host.resctrl import read_resctrl
from criproxy.model.controls import WEIGHT_FILES
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.resctrl import Resctrl
from criproxy.model.machine.scheduler import Scheduler

_CGROUPS = "sys/fs/cgroup"
_V1_BURST, _V1_THROTTLE, _V1_WEIGHT = "cpu.cfs_burst_us", "blkio.throttle.read_bps_device", "blkio.bfq.weight"
_ALL_V1 = frozenset((_V1_BURST, _V1_THROTTLE, _V1_WEIGHT))
UNCORE = "sys/devices/system/cpu/intel_uncore_frequency"
_SCHEDULER = {
    "runtime_us": "sched_rt_runtime_us",
    "shortest_period_us": "sched_deadline_period_min_us",
    "longest_period_us": "sched_deadline_period_max_us",
}


def read_controllable(host_root: Path) -> Controllable:
    """Read what the machine below *host_root* has; what is missing or cannot be read is not there."""
    mount = host_root / _CGROUPS
    unified = not (mount / "cpuset").is_dir()
    resctrl, no_resctrl = _resctrl(host_root)
    files = _v2_files(host_root) if unified else _v1_files(mount / "cpu") | _v1_files(mount / "blkio")
    cpus = [host_root / CPUS / name for name in entries(host_root / CPUS) if name[:3] == "cpu" and name[3:].isdigit()]
    states = (cpu / "cpuidle" / state / "name" for cpu in cpus for state in entries(cpu / "cpuidle"))
    lowest = [khz for cpu in cpus if (khz := read_number(cpu / "cpufreq/cpuinfo_min_freq"))]
    highest = [khz for cpu in cpus if (khz := read_number(cpu / "cpufreq/cpuinfo_max_freq"))]
    return Controllable(
        unified=unified,
        v1_burst=_V1_BURST in files,
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        throttles=not {IO_LIMITS, _V1_THROTTLE}.isdisjoint(files),
        weights=not {*WEIGHT_FILES, _V1_WEIGHT}.isdisjoint(files),
        governors=_words(cpus, "cpufreq/scaling_available_governors"),
        energy_preferences=_words(cpus, "cpufreq/energy_performance_available_preferences"),
        min_khz=min(lowest, default=0),
        max_khz=max(highest, default=0),
        c_states=tuple(dict.fromkeys(filter(None, map(read_text, states)))),
        uncore=bool(entries(host_root / UNCORE)),
        resctrl=resctrl,
        no_resctrl=no_resctrl,
        scheduler=read_scheduler(host_root),
    )


def _resctrl(host_root: Path) -> tuple[Resctrl | None, str]:
    try:
        return read_resctrl(host_root), ""
    except CriproxyError as error:
        return None, str(error)


def _v2_files(host_root: Path) -> AbstractSet[str]:
    found = read_control_files(host_root)
    return found.names if found else {IO_LIMITS, *WEIGHT_FILES}


def _v1_files(mount: Path) -> AbstractSet[str]:
    """Return the names of the files in the cgroup of all pods, or in any other one below *mount* but the root.

    Where there is none yet, none is known to lack: all that a kernel may have.
    """
    for parent in (*(each for each in POD_PARENTS if each != "."), *entries(mount)):
        if (mount / parent).is_dir():
            return set(entries(mount / parent))
    return _ALL_V1 if mount.is_dir() else frozenset()


def _words(cpus: list[Path], name: str) -> tuple[str, ...]:
    """Return the words that the files *name* of all *cpus* have."""
    return tuple(dict.fromkeys(word for cpu in cpus for word in (read_text(cpu / name) or "").split()))


def read_scheduler(host_root: Path) -> Scheduler:
    """Read the limits of the machine below *host_root*; what cannot be read is the kernel's default."""
    kernel = {name: read_number(host_root / "proc/sys/kernel" / file) for name, file in _SCHEDULER.items()}
    known = {name: value for name, value in kernel.items() if value is not None}
    return Scheduler(**known, pods_runtime_us=_pods_runtime_us(host_root / "sys/fs/cgroup/cpu"))


def _pods_runtime_us(mount: Path) -> int | None:
    """Return the limit of the pods' parent cgroup; one that does not exist yet has none, as every new one."""
    if read_number(mount / "cpu.rt_runtime_us") is None:
        return None
    found = (read_number(mount / parent / "cpu.rt_runtime_us") for parent in POD_PARENTS if parent != ".")
    return next((value for value in found if value is not None), 0)
