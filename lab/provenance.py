"""The checkout and the shared facts; and what figures belong to: the machine, and the versions of what was measured."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from cpuinfo import get_cpu_info

import criproxy
from criproxy.host.machine import discover

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("CRIPROXY_SHARED") or ROOT.parent / "shared")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def machine() -> dict[str, Any]:
    """CPUs, NUMA nodes, memory, kernel, governor, hypervisor."""
    found, processor = discover(), get_cpu_info()
    return {
        "model": processor.get("brand_raw", platform.machine()),
        "cpus": len(found.cpus),
        "threads_per_core": len(found.cpus) // (psutil.cpu_count(logical=False) or len(found.cpus)),
        "numa_nodes": len(found.mems),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": platform.release(),
        "governor": _GOVERNOR.read_text().strip() if _GOVERNOR.exists() else "none",
        "virtual": "hypervisor" in processor.get("flags", ()),
    }


def versions() -> dict[str, str]:
    """Versions of criproxy, its interpreter and gRPC, and the machine's runtime."""
    found = {"criproxy": criproxy.__version__, "python": platform.python_version(), "grpcio": version("grpcio")}
    programs = {program: said(program, "--version").split("\n")[0] for program in ("containerd", "runc")}
    return {**found, **programs}


def said(*command: str, **environment: str) -> str:
    """What a program prints; "unknown" where that cannot be had."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment or None)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def commit() -> str:
    """That of the checkout."""
    return said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
