"""How criproxy would place pods on machines with several NUMA nodes: simulated, not measured.

How near containers would be to their CPUs, memory and cards. These machines are snapshots in the shared facts, of real
ones except those whose names end in ``-made``; the pods come from examples of `simulate --load`. The policy `none`
stands for a kubelet without managers: every container may use all CPUs and memory.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.benefit.cases import KUBELET
from lab.provenance import ROOT, SHARED

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


def simulate(directory: Path) -> dict[str, Any]:
    """Machine → policy → its scores; empty where there are no snapshots. Files are written to *directory*."""
    options = []
    for name, text in _POLICIES.items():
        (directory / f"{name}.yaml").write_text(text)
        options += ["--policy", str(directory / f"{name}.yaml")]
    archives = {machine: SHARED / f"topologies/snapshots/{machine}.tar.xz" for machine in MACHINES}
    return {machine: _scores(archive, options) for machine, archive in archives.items() if archive.exists()}


def _scores(archive: Path, options: Sequence[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {name: {} for name in _POLICIES}
    for load, kept in _KEPT.items():
        command = [sys.executable, "-m", "criproxy", "simulate", "--load", str(LOADS / f"{load}.yaml")]
        command += ["--host-root", str(archive), *options, "--format", "json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for told in json.loads(done.stdout)["policies"]:
            found[told["policy"]] |= {name: round(float(told[name]), 4) for name in kept}
    return found
