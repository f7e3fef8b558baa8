"""The policy to copy is complete, and what its README shows works."""

import re

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerResized
from criproxy.placement.invariants import violations
from criproxy.placement.policies.template import TemplateOptions, TemplatePolicy
from criproxy.simulate.hosts import machine
from tests.conftest import ROOT
from tests.placement.policies.tables import shown, shown_resize, text

MACHINE = machine(nodes=2, cores=4, threads=1)


def policy(**options: object) -> TemplatePolicy:
    """The policy, from options as in a policy file."""
    return TemplatePolicy(TemplateOptions.model_validate(options))


def asking(key: str, cpu_milli: int) -> Container:
    """A container."""
    return Container(key=key, pod="s", name=key, cpu_milli=cpu_milli)


def placed(by: TemplatePolicy, *sizes: int, topology: Topology = MACHINE) -> list[str]:
    """The CPUs of containers that come one after the other and ask for so many milli-CPU."""
    node = Node(topology)
    for index, cpu_milli in enumerate(sizes):
        node = step(node, ContainerCreating(asking(f"c{index}", cpu_milli)), by).node
        assert violations(node) == []
    return [format_cpuset(node.grants[f"c{index}"].cpus) for index in range(len(sizes))]


def test_containers_spread_by_what_they_ask() -> None:
    """Each goes where the most is left; ties go to the lowest CPUs."""
    assert placed(policy(), 1000, 500, 250, 250, 1000) == ["0-3", "4-7", "4-7", "4-7", "0-3"]


def test_reserved_cpus_are_left_out() -> None:
    """They count for no node; where nothing else is left, they are used."""
    assert placed(policy(reservedCpus="0-2"), 250, 250) == ["4-7", "4-7"]
    assert placed(policy(reservedCpus="0-7"), 250, 250) == ["0-3", "4-7"]


def test_a_full_machine_refuses() -> None:
    """The sentence names the container, what it asks and what is left."""
    assert placed(policy(fullPercent=150), 5000, 5000) == ["0-3", "4-7"]
    with pytest.raises(NotEnough, match=r"container c2 asks for 1001m, .* on any NUMA node is 1000m, on CPUs 0-3"):
        placed(policy(fullPercent=150), 5000, 5000, 1001)


def test_the_readme_works() -> None:
    """Its test, run with the template, passes, and its protocol is ours."""
    text = (ROOT / "criproxy/placement/policies/README.md").read_text()
    blocks = [
        re.sub("^    ", "", block, flags=re.MULTILINE)
        for block in re.findall(r"((?:^    .*\n|^\n)+)", text, re.MULTILINE)
    ]
    (example,) = [block for block in blocks if "import step" in block]
    scope: dict[str, object] = {"policy": policy()}
    exec(example, scope)  # noqa: S102 (our own file)

    (protocol,) = [block for block in blocks if "class Policy" in block]
    api = (ROOT / "criproxy/placement/policies/api.py").read_text().partition("@runtime_checkable")[0]
    assert [line.removesuffix(" ...") for line in protocol.strip().splitlines() if line.strip()] == [
        line for line in api.splitlines() if line.startswith(("class ", "    def "))
    ]
    for path in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / "criproxy/placement/policies" / path).exists()
    assert isinstance(scope["container"], Container)
    assert scope["container"].qos is QosClass.GUARANTEED


def test_what_it_chooses_from_is_shown() -> None:
    """The node with the most room first; one that is full lacks what is too much."""
    by, node = policy(), Node(MACHINE)
    for name, milli in (("a", 3500), ("b", 1000), ("c", 500)):
        node = step(node, ContainerCreating(asking(name, milli)), by).node

    assert text(shown(node, asking("new", 250), by)) == "*CPUs 4-7, CPUs 0-3; it has more room"
    assert text(shown(node, asking("new", 1000), by)) == "*CPUs 4-7, CPUs 0-3 -500m"
    assert text(shown(node, asking("new", 4000), by)) == "CPUs 0-3 -3500m, CPUs 4-7 -1500m"
    resized = ContainerResized("a", Sizes(cpu_milli=2000))
    assert text(shown_resize(node, resized, by)) == "*CPUs 0-3, CPUs 4-7; it is already there"
