"""Simulated, not measured: how near containers would be to their CPUs, memory and cards on several NUMA nodes.

The machines are snapshots in the shared facts, of real ones except those whose names end in ``-made``; the pods come
from examples of `simulate --load`. The
policy `none` stands for a kubelet without managers: every container may use all CPUs and all memory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.benefit.cases import KUBELET
from lab.benefit.equipment import ROOT

MACHINES = ("xeon-2s2n-smt-pci", "xeon-2s4n-snc2", "xeon-4s4n-144", "epyc9654-2s8n-384-made", "kunpeng-128")
LOADS = ROOT / "docs/examples/loads"
_POLICIES = {
    "none": "policy: none\n",
    KUBELET.name: KUBELET.policy,
    "topology-aware": 'policy: topology-aware\nreservedCpus: "0"\n',
    "balloons": 'policy: balloons\nreservedCpus: "0"\n',
}
_KEPT = {"mixed": ("cpu_on_one_node", "memory_on_one_node", "distance", "fragmentation"), "gpus": ("at_cards",)}
"""Load → the scores that are kept of it."""


def snapshots() -> Path:
    """Where the machines are: below CRIPROXY_SHARED, else ``../shared``."""
    return Path(os.environ.get("CRIPROXY_SHARED") or ROOT.parent / "shared") / "topologies/snapshots"


def simulate(directory: Path) -> dict[str, Any]:
    """Machine → policy → its scores; empty where there are no snapshots. Files are written to *directory*."""
    found: dict[str, Any] = {}
    for machine in MACHINES:
        archive = snapshots() / f"{machine}.tar.xz"
        if archive.exists():
            found[machine] = _scores(archive, directory)
    return found


def _scores(archive: Path, directory: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {name: {} for name in _POLICIES}
    for load, kept in _KEPT.items():
        for told in _simulated(load, archive, directory)["policies"]:
            found[told["policy"]] |= {name: round(float(told[name]), 4) for name in kept}
    return found


def _simulated(load: str, archive: Path, directory: Path) -> dict[str, Any]:
    options = []
    for name, text in _POLICIES.items():
        (directory / f"{name}.yaml").write_text(text)
        options += ["--policy", str(directory / f"{name}.yaml")]
    command = [sys.executable, "-m", "criproxy", "simulate", "--load", str(LOADS / f"{load}.yaml")]
    command += ["--host-root", str(archive), *options, "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"simulate failed on {archive.name}: {done.stderr[-1000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told
