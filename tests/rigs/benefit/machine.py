"""The machine and the software that figures belong to."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import criproxy
from criproxy.discovery.machine import discover
from tests.rigs.benefit.equipment import REQUIREMENTS, TORCH, Equipment

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_RESULTS = ("numpy", "scipy", "tensorflow-cpu", "torch")


def describe(cgroup_version: int) -> dict[str, Any]:
    """CPUs, NUMA nodes, kernel, cgroups, governor, hypervisor."""
    found = discover()
    cpuinfo = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return {
        "model": models[0] if models else platform.machine(),
        "cpus": len(found.cpus),
        "threads_per_core": _threads_per_core(),
        "numa_nodes": len(found.mems),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1),
        "kernel": platform.release(),
        "cgroups": f"v{cgroup_version}",
        "governor": _GOVERNOR.read_text().strip() if _GOVERNOR.exists() else "none",
        "virtual": " hypervisor" in cpuinfo,
    }


def _threads_per_core() -> int:
    siblings = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    if not siblings.exists():
        return 1
    words = siblings.read_text().strip().split(",")
    return sum(int(last or first) - int(first) + 1 for first, _, last in (word.partition("-") for word in words))


def versions(equipment: Equipment) -> dict[str, str]:
    """Versions of everything that a figure depends on."""
    found = {"criproxy": criproxy.__version__, "python": platform.python_version(), "grpcio": version("grpcio")}
    for program in ("containerd", "runc"):
        found[program] = _said(program, "--version").split("\n")[0]
    redis = equipment.redis / "usr/bin/redis-server"
    if redis.exists():
        environment = {**os.environ, **equipment.environment}
        found["redis"] = _said(str(redis), "--version", environment=environment).split(" sha=")[0]
    if equipment.complete:
        found |= _pinned()
        found["workloads' python"] = _said(str(equipment.python), "--version")
    return found


def _pinned() -> dict[str, str]:
    lines = [*REQUIREMENTS.read_text().splitlines(), *TORCH.read_text().splitlines()]
    pairs = (line.partition("==") for line in lines)
    return {name: wanted for name, _, wanted in pairs if name in _RESULTS}


def _said(*command: str, environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def interpreter() -> str:
    """The interpreter that criproxy runs with."""
    return sys.executable
