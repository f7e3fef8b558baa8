"""The example policy files can be used as they are, on machines large and small."""

import re
from pathlib import Path

import pytest

from criproxy.config import Settings, load
from criproxy.errors import ConfigError, NotEnough
from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone
from criproxy.placement.invariants import violations
from criproxy.simulate.hosts import machine
from tests.config.files import write
from tests.conftest import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "policies").glob("*.yaml"))
FOUR_CPUS = machine(nodes=1, cores=4, threads=1)
TWO_SOCKETS = machine(nodes=2, cores=4, threads=2)
MACHINES = {
    "two-cpus": machine(nodes=1, cores=1, threads=2),
    "four-cpus": FOUR_CPUS,
    "two-sockets": TWO_SOCKETS,
    "eight-nodes": machine(nodes=8, cores=24, threads=2, packages=2),
    "part-for-pods": machine(nodes=2, cores=8, threads=1, allowed=frozenset(range(3, 14)) | {0}),
}


def asking(key: str, qos: QosClass, cpu_milli: int) -> Container:
    """A container that comes."""
    return Container(key=key, pod=f"pod-{key}", name=key, qos=qos, cpu_milli=cpu_milli)


CRITICAL = asking("critical", QosClass.GUARANTEED, 2000)
ARRIVALS = [
    CRITICAL,
    asking("sidecar", QosClass.GUARANTEED, 200),
    asking("web", QosClass.BURSTABLE, 1500),
    asking("job", QosClass.BEST_EFFORT, 0),
    asking("second", QosClass.GUARANTEED, 1000),
]


def example(tmp_path: Path, name: str, topology: Topology) -> Settings:
    """The example *name*, from a place where only its owner can write, as installed."""
    text = (ROOT / f"policies/{name}.yaml").read_bytes()
    return load(write(tmp_path / f"{name}.yaml", text), "any", topology=topology)


def life(settings: Settings, topology: Topology) -> list[str]:
    """Let containers come and go; what is ever wrong with the node."""
    node, policy, found = Node(topology), settings.build_policy(), []
    for container in ARRIVALS:
        try:
            node = step(node, ContainerCreating(container), policy).node
        except NotEnough:
            continue
        found += violations(node, settings.options.reserved(topology))
    for key in list(node.containers):
        node = step(node, ContainerGone(key), policy).node
        found += violations(node, settings.options.reserved(topology))
    return found + [f"{key} is left" for key in node.grants]


LARGE = {
    "pools": (4, "there is no room for 'dualcpu'"),
    "balloons-mixed": (3, "a balloon of type database needs 2 CPUs, but 1 is left of 2 (0-1)"),
}
"""How many CPUs examples need, and what `criproxy check` says where there are fewer."""


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("topology", MACHINES.values(), ids=MACHINES.keys())
def test_on_made_up_machines(tmp_path: Path, name: str, topology: Topology) -> None:
    """An example fits the machine, places who comes, and never breaks an invariant."""
    least, said = LARGE.get(name, (0, ""))
    if len(topology.cpus) < least:
        with pytest.raises(ConfigError, match=re.escape(said)):
            example(tmp_path, name, topology)
        return
    assert life(example(tmp_path, name, topology), topology) == []


_AWARE = (TWO_SOCKETS, ["4,12", "1-3,8-11", "1-3,8-11", "6-7,13-15", "5"])
_STATIC = (TWO_SOCKETS, ["1,9", *["0,2-7,10-15"] * 3, "8"])
PLACED = {
    "default": (TWO_SOCKETS, ["0,8", "5-7,12-15", "5-7,12-15", "1-3,9-11", "4"]),
    "balloons-mixed": (TWO_SOCKETS, ["4-6,12-13"] * 5),
    "pools": (TWO_SOCKETS, ["6-8,14-15"] * 5),
    "edge-4-cpus": (FOUR_CPUS, ["1-2", *["0"] * 3, "3"]),
    **dict.fromkeys(("topology-aware", "gpu-node", "gpu-node-plugin", "vgpu-node", "npu-node"), _AWARE),
    **dict.fromkeys(("static", "latency-critical", "many-small-pods"), _STATIC),
}
"""A machine for each example, and the CPUs of `ARRIVALS` on it."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_who_gets_what(tmp_path: Path, name: str) -> None:
    """An example does what its comments promise: whole CPUs for who asks for them, and the rest for all others."""
    topology, cpus = PLACED[name]
    policy = example(tmp_path, name, topology).build_policy()
    node = Node(topology)
    for container in ARRIVALS:
        node = step(node, ContainerCreating(container), policy).node

    assert [format_cpuset(node.grants[c.key].cpus) if c.key in node.grants else None for c in ARRIVALS] == cpus
