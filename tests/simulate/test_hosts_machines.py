"""Made-up machines have the shape that was asked for."""

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.simulate.hosts import machine


def test_two_nodes_with_threads() -> None:
    """CPUs are numbered first threads first."""
    topology = machine(nodes=2, cores=4, threads=2)

    assert [format_cpuset(node.cpus) for node in topology.nodes] == ["0-3,8-11", "4-7,12-15"]
    assert [format_cpuset(core.cpus) for core in topology.cores[:2]] == ["0,8", "1,9"]
    assert [package.cpus for package in topology.packages] == [node.cpus for node in topology.nodes]


def test_packages_span_nodes() -> None:
    """Nodes are spread over fewer packages in order."""
    topology = machine(nodes=4, cores=1, threads=1, packages=2)

    assert [format_cpuset(package.cpus) for package in topology.packages] == ["0-1", "2-3"]


def test_allowed_part() -> None:
    """What pods may use is a part of what is online."""
    topology = machine(cores=4, threads=1, allowed=parse_cpuset("1-2,77"))

    assert format_cpuset(topology.cpus) == "1-2"
    assert format_cpuset(topology.online_cpus) == "0-3"
