"""availableResources and reservedResources say which CPUs a policy uses and which nobody owns."""

from collections.abc import Mapping

import pytest

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.checked_policy import CheckedPolicy
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating
from criproxy.placement.options.policy_options import Misfit, Options
from criproxy.placement.options.usable import HostReader
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.policies.template import TemplateOptions, TemplatePolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import GIB
from tests.placement.policies.shapes import n4c16


def options(available: str | None = None, reserved: object = None, **more: object) -> Options:
    """Options as in a policy file."""
    resources: dict[str, object] = {}
    if available is not None:
        resources["availableResources"] = {"cpu": available}
    if reserved is not None:
        resources["reservedResources"] = {"cpu": reserved}
    return Options.model_validate(resources | more)


def problems(of: Options) -> list[Misfit]:
    """What is wrong with them alone and on n4c16."""
    return [*of.contradictions()] or [*of.misfits(n4c16())]


def test_a_cgroup_says_which() -> None:
    """Once its CPUs have been read; one that is not there is a misfit."""
    wanted = options("/pods")

    topology = n4c16()
    assert wanted.usable(topology).cpus == topology.cpus
    found = wanted.resolved(HostReader(lambda path: parse_cpuset("1-4,11") if path == "/pods" else None))
    assert format_cpuset(found.usable(topology).cpus) == "1-4,11"
    missing = wanted.resolved(HostReader(lambda _: None))
    assert [text for _, text in missing.misfits(topology)] == ["there is no cgroup '/pods' with a cpuset"]


@pytest.mark.parametrize(
    ("available", "reserved", "cpus"),
    [
        pytest.param(None, None, "", id="nothing"),
        pytest.param(None, "750m", "0", id="a-part-of-a-cpu"),
        pytest.param(None, 1, "0", id="a-number"),
        pytest.param(None, 1.5, "0-1", id="one-and-a-half"),
        pytest.param("cpuset:4-7,8-13", "2250m", "4-6", id="the-first-available"),
        pytest.param("cpuset:4-7,8-13", "cpuset:7,11", "7,11", id="cpus"),
        pytest.param(None, "0", "", id="none"),
    ],
)
def test_what_is_reserved(available: str | None, reserved: object, cpus: str) -> None:
    """Amounts are rounded up, and are the first that are available."""
    assert format_cpuset(options(available, reserved).reserved(n4c16())) == cpus


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (
            options("cpuset:4-7,8-13", "cpuset:3,7,11,15"),
            "reservedResources.cpu: CPUs 3,15 are not among the available ones, 4-13",
        ),
        (options("cpuset:4-7,8-13", "11"), "reservedResources.cpu: reserves 11 CPUs, but only 10 are available (4-13)"),
        (
            options("exclude-cpuset:0-1", "cpuset:1"),
            "reservedResources.cpu: CPU 1 is not among the available ones, 2-15",
        ),
        (options("cpuset:4-7", reservedCpus="0"), "reservedCpus: CPU 0 is not among the available ones, 4-7"),
        (
            options(None, 1, reservedCpus="0"),
            "reservedCpus: means the same as reservedResources.cpu: set only one of them",
        ),
        (options("cpuset:14-17"), "availableResources.cpu: CPUs 16-17 are not online in this machine, which has 0-15"),
        (
            options("exclude-cpuset:0-15"),
            "availableResources.cpu: leaves none of the CPUs that pods may use, 0-15: name some of these",
        ),
        (
            options("cpuset:4-5", 2),
            "reservedResources.cpu: reserves every CPU that pods may use (4-5): leave at least one",
        ),
        (options(None, 17), "reservedResources.cpu: reserves 17 CPUs, but only 16 are available (0-15)"),
        (options("cpuset:4-11", "cpuset:11"), None),
    ],
)
def test_contradictions_and_misfits(chosen: Options, said: str | None) -> None:
    """What cannot be is told, with the option that asks for it."""
    told = [f"{'.'.join(map(str, path))}: {text}" for path, text in problems(chosen)]

    assert told == ([said] if said else [])


@pytest.mark.parametrize(
    "values",
    [
        {"availableResources": {"cpu": "4-11"}},
        {"availableResources": {"cpu": "cpuset:"}},
        {"availableResources": {"cpu": 4}},
        {"availableResources": {"cpus": "cpuset:4"}},
        {"reservedResources": {"cpu": "-1"}},
        {"reservedResources": {"cpu": True}},
        {"reservedResources": {"cpu": "1.5m"}},
        {"reservedResources": {"cpu": "two"}},
    ],
)
def test_what_cannot_be_understood(values: Mapping[str, object]) -> None:
    """It is a mistake in the file, whatever the machine."""
    with pytest.raises(ValueError, match=r"must be|names no CPU|not permitted"):
        Options.model_validate(values)


CHOSEN = {"availableResources": {"cpu": "cpuset:4-11"}, "reservedResources": {"cpu": "cpuset:11"}}
POLICIES: Mapping[str, Policy] = {
    "static": StaticPolicy(StaticOptions.model_validate(CHOSEN)),
    "template": TemplatePolicy(TemplateOptions.model_validate(CHOSEN)),
    "topology-aware": TopologyAwarePolicy(TopologyAwareOptions.model_validate(CHOSEN)),
    "fallback": Fallback(Options.model_validate(CHOSEN)),
}


@pytest.mark.parametrize("name", [*POLICIES, "guarded"])
def test_policies_keep_to_what_is_available(name: str) -> None:
    """Nobody gets a CPU or memory beyond it, and nobody owns the reserved one."""
    policy: Policy = (
        CheckedPolicy(POLICIES["static"], "x", Options.model_validate(CHOSEN)) if name == "guarded" else POLICIES[name]
    )
    node = Node(n4c16())
    for number, qos in enumerate([QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT, QosClass.GUARANTEED]):
        container = Container(
            key=f"r{number}", pod="s", name=f"c{number}", qos=qos, cpu_milli=1000, memory_limit_bytes=GIB // 8
        )
        node = step(node, ContainerCreating(container), policy).node

    for grant in node.grants.values():
        assert grant.cpus <= parse_cpuset("4-11")
        assert grant.mems <= {1, 2}
        assert 11 not in grant.exclusive
    assert len(node.exclusive_cpus) == (0 if name in ("template", "fallback") else 2)
