"""Simulated, not measured: how many containers would have CPUs and memory on one NUMA node, on machines with several.

The machines are snapshots of real ones in the shared facts; the pods come from an example of `simulate --load`. The
policy `none` stands for a kubelet without managers: every container may use all CPUs and all memory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.rigs.benefit.cases import KUBELET
from tests.rigs.benefit.equipment import ROOT

MACHINES = ("xeon-2s2n-smt-pci", "xeon-2s4n-snc2", "xeon-4s4n-144", "epyc9654-2s8n-384-made", "kunpeng-128")
LOAD = ROOT / "docs/examples/loads/mixed.yaml"
_POLICIES = {
    "none": "policy: none\n",
    KUBELET.name: KUBELET.policy,
    "topology-aware": 'policy: topology-aware\nreservedCpus: "0"\n',
    "balloons": 'policy: balloons\nreservedCpus: "0"\n',
}
_KEPT = ("cpu_on_one_node", "memory_on_one_node", "distance")


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
    options = []
    for name, text in _POLICIES.items():
        (directory / f"{name}.yaml").write_text(text)
        options += ["--policy", str(directory / f"{name}.yaml")]
    command = [sys.executable, "-m", "criproxy", "simulate", "--load", str(LOAD), "--host-root", str(archive)]
    done = subprocess.run(
        [*command, *options, "--format", "json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"simulate failed on {archive.name}: {done.stderr[-1000:]}")
    return _kept(json.loads(done.stdout))


def _kept(told: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {each["policy"]: {name: round(float(each[name]), 4) for name in _KEPT} for each in told["policies"]}
