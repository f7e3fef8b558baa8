"""Whose CFS quota is lifted, and when it comes back: decided from layouts, whatever the policy."""

from dataclasses import replace

import pytest

from criproxy.model.attributes import in_place
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

MACHINE = machine(cores=8, threads=1)
KEEP = policy_of("static", {"reservedCpus": "0"})
LIFT = policy_of("static", {"reservedCpus": "0", "cpuQuota": "lift"})
MIXED = policy_of("topology-aware", {"reservedCpus": "0", "cpuQuota": "lift"})


def asking(name: str, cpu_milli: int = 2000, limit_milli: int | None = 2000, **more: object) -> Container:
    """A Guaranteed container."""
    container = Container(key=f"r-{name}", pod="s", name=name, qos=QosClass.GUARANTEED, cpu_milli=cpu_milli)
    return container.resized(Sizes(cpu_milli=cpu_milli, cpu_limit_milli=limit_milli, **more))  # type: ignore[arg-type]


def after(*events: ev.Event, policy: Policy = LIFT, node: Node | None = None) -> Node:
    """The node after *events*."""
    node = node or Node(MACHINE)
    for event in events:
        node = step(node, event, policy).node
    return node


def quota(node: Node, name: str) -> CpuQuota:
    """What becomes of the quota of a container."""
    return node.grants[f"r-{name}"].quota


@pytest.mark.parametrize(
    ("container", "policy", "expected"),
    [
        pytest.param(asking("a"), LIFT, CpuQuota.LIFTED, id="owner"),
        pytest.param(asking("a"), KEEP, CpuQuota.LEFT, id="kept"),
        pytest.param(asking("a", limit_milli=None), LIFT, CpuQuota.LEFT, id="without-limit"),
        pytest.param(asking("a", 500, 500), LIFT, CpuQuota.LEFT, id="sharer"),
        pytest.param(asking("a", 1500, 1500), MIXED, CpuQuota.LEFT, id="own-and-share"),
        pytest.param(asking("a", 1000, 1000), MIXED, CpuQuota.LIFTED, id="own-under-another-policy"),
    ],
)
def test_who_owns_all_of_its_cpus_loses_its_limit(container: Container, policy: Policy, expected: CpuQuota) -> None:
    """One that shares some of them keeps it, as the peers do: it protects those with whom it shares."""
    decision = step(Node(MACHINE), ev.ContainerCreating(container), policy)

    assert quota(decision.node, "a") is expected
    assert decision.node.applied["r-a"].lifted is (expected is CpuQuota.LIFTED)
    assert any("CFS quota" in reason for reason in decision.sentences) is (expected is CpuQuota.LIFTED)


def test_a_resize_gives_it_back_and_lifts_it_again() -> None:
    """Who shares from now on gets its new limit; as an owner again, it has none."""
    node = after(ev.ContainerCreating(asking("a")))

    shares = step(node, ev.ContainerResized("r-a", Sizes(cpu_milli=1500, cpu_limit_milli=1500)), LIFT)
    owns = step(shares.node, ev.ContainerResized("r-a", Sizes(cpu_milli=1000, cpu_limit_milli=1000)), LIFT)

    assert quota(shares.node, "a") is CpuQuota.RESTORED
    assert shares.sentences[-1] == "a gets back its CFS quota, 150000 of 100000 µs, on CPUs 0-7"
    assert quota(owns.node, "a") is CpuQuota.LIFTED


def test_a_new_policy_concerns_newcomers_or_all() -> None:
    """Lifting begins and ends for those who are here with ``apply: all`` only, or when they are placed anew."""
    lifted, kept = ev.ContainerCreating(asking("a")), ev.ContainerCreating(asking("b"))

    node = after(ev.PolicyChanged(), kept, policy=KEEP, node=after(lifted))
    assert [quota(node, name) for name in "ab"] == [CpuQuota.LIFTED, CpuQuota.LEFT]

    none = step(node, ev.PolicyChanged(apply_all=True), KEEP)
    assert [quota(none.node, name) for name in "ab"] == [CpuQuota.RESTORED, CpuQuota.LEFT]
    assert "a gets back its CFS quota, 200000 of 100000 µs, on CPUs 1-2" in none.sentences

    all_of_them = step(none.node, ev.PolicyChanged(apply_all=True), LIFT).node
    assert [quota(all_of_them, name) for name in "ab"] == [CpuQuota.LIFTED, CpuQuota.LIFTED]


def test_an_owner_whose_cpus_go_away_gets_its_quota() -> None:
    """Where only shared CPUs are left, nobody runs without a limit."""
    node = after(ev.ContainerCreating(asking("a")))

    left = after(ev.TopologyChanged(machine(cores=8, threads=1, allowed=parse_cpuset("0"))), node=node)

    assert left.grants["r-a"] == Grant(frozenset({0}), left.grants["r-a"].mems, quota=CpuQuota.RESTORED)


def test_a_release_restores_what_was_lifted() -> None:
    """Also what nobody remembers, if it is one of ours; an update is needed until it has its quota."""
    node = after(
        ev.ContainerCreating(asking("a")), ev.ContainerCreated("r-a", "a"), ev.ContainerCreating(asking("b", 500, 500))
    )
    node = after(ev.ContainerCreated("r-b", "b"), node=node)

    released = step(node, ev.Released("test"), LIFT)

    assert {key: grant.quota for key, grant in released.node.grants.items()} == {
        "a": CpuQuota.RESTORED,
        "b": CpuQuota.LEFT,
    }
    whole = Applied(MACHINE.cpus, MACHINE.mems)
    assert not in_place(released.node.grants["a"], Applied(whole.cpus, whole.mems, lifted=True))
    assert after(ev.UpdateApplied("a", Applied(whole.cpus, whole.mems)), node=released.node).grants.keys() == {"b"}
    forgotten = node.replace(grants={}, applied={})
    assert step(forgotten, ev.Released("test"), NonePolicy(Options())).node.grants["a"].quota is CpuQuota.RESTORED


@pytest.mark.parametrize("policy", [KEEP, LIFT], ids=["keep", "lift"])
@pytest.mark.parametrize(
    ("has", "reservation", "expected"),
    [
        pytest.param(Applied(parse_cpuset("1-2"), MACHINE.mems, lifted=True), "r", CpuQuota.LIFTED, id="lifted"),
        pytest.param(Applied(parse_cpuset("1-2"), MACHINE.mems), "r", CpuQuota.LEFT, id="limited"),
        pytest.param(Applied(parse_cpuset("1-2"), MACHINE.mems, lifted=True), "", CpuQuota.LEFT, id="others-lifted"),
    ],
)
def test_who_is_found_goes_on_as_it_is(policy: Policy, has: Applied, reservation: str, expected: CpuQuota) -> None:
    """As with its CPUs, nothing changes because it is taken in; what others lift is theirs."""
    container = replace(asking("c"), key="c", state=ContainerState.RUNNING, reservation=reservation)

    decision = step(Node(MACHINE), ev.Found(containers=(ev.Present(container, has),)), policy)

    assert decision.node.grants["c"].quota is expected
    assert in_place(decision.node.grants["c"], decision.node.applied["c"])
    assert not decision.updates


def test_who_is_found_without_quota_on_shared_cpus_gets_one() -> None:
    """That of an owner that cannot go on as one."""
    container = replace(asking("c", 500, 500), key="c", state=ContainerState.RUNNING, reservation="r")
    has = Applied(parse_cpuset("1-2"), MACHINE.mems, lifted=True)

    node = step(Node(MACHINE), ev.Found(containers=(ev.Present(container, has),)), LIFT).node

    assert node.grants["c"].quota is CpuQuota.RESTORED
    assert node.applied["c"].lifted


def test_a_violation_is_seen() -> None:
    """The invariant tells who has no quota and is not alone."""
    node = after(ev.ContainerCreating(asking("a")))
    lying = node.replace(grants={"r-a": Grant(parse_cpuset("0-2"), MACHINE.mems, quota=CpuQuota.LIFTED)})

    assert violations(lying) == ["a has no CFS quota and shares CPUs 0-2"]
