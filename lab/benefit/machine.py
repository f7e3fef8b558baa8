"""The machine and the software that figures belong to."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from cpuinfo import get_cpu_info

import criproxy
from criproxy.host.machine import discover
from lab.benefit.equipment import REQUIREMENTS, TORCH, Equipment

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_RESULTS = ("numpy", "scipy", "tensorflow-cpu", "torch")


def describe(cgroup_version: int) -> dict[str, Any]:
    """CPUs, NUMA nodes, kernel, cgroups, governor, hypervisor."""
    found = discover()
    processor = get_cpu_info()
    return {
        "model": processor.get("brand_raw", platform.machine()),
        "cpus": len(found.cpus),
        "threads_per_core": len(found.cpus) // (psutil.cpu_count(logical=False) or len(found.cpus)),
        "numa_nodes": len(found.mems),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": platform.release(),
        "cgroups": f"v{cgroup_version}",
        "governor": _GOVERNOR.read_text().strip() if _GOVERNOR.exists() else "none",
        "virtual": "hypervisor" in processor.get("flags", ()),
    }


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
