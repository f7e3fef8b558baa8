"""What classes set is a part of grants, as long as they set it, and then its defaults."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import BadAnnotation
from criproxy.model.attributes import FILES, as_facts, granted
from criproxy.model.controls import DEFAULTS, NATURAL, NO_CONTROLS, Controls
from criproxy.model.grant import Applied, CpuQuota
from criproxy.model.machine.controllable import Controllable
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.placement import events as ev
from criproxy.placement.decision import target
from criproxy.placement.engine import step
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.class_rules import ClassParts, ExplainedControls
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.records.history import entries_of
from criproxy.placement.records.log_line import log_line
from criproxy.simulate.hosts import machine
from tests.placement.classes.policy import ALLOW, MIB, contents
from tests.placement.classes.policy import container as asking
from tests.placement.policies.shapes import n4c16

MACHINE = machine(nodes=1, cores=4, threads=1)
HIGH, WEIGHT = {"memory.high": "104857600"}, {"cpu.weight": "200"}
IDLE = {"cpu.idle": "1"}


class Rules:
    """Classes that set the same for each container but those without a class."""

    def __init__(self, values: Mapping[str, str], refuses: str = "") -> None:
        self.values, self.refuses = dict(values), refuses

    def controls_of(self, wishes: Wishes, pool: str) -> ExplainedControls:
        """Return the values, and why."""
        container = wishes.container
        if self.refuses and container.name == self.refuses:
            raise BadAnnotation(f"container {container.title} names no class")
        values = {k: v.replace("LIMIT", str(container.memory_limit_bytes)) for k, v in self.values.items()}
        return Controls(tuple(sorted(values.items())), (("memory", "gold"),)), ("its class is gold",)

    def desired_parts(self) -> ClassParts:
        """Return nothing."""
        return ClassParts()


class WithRules(StaticOptions):
    """Options of a policy file with classes."""

    rules: Any = None

    @property
    def classes(self) -> Any:  # noqa: ANN401 (a `Rules`, of which pydantic knows nothing)
        """Return the classes of the file."""
        return self.rules


def policy(values: Mapping[str, str] | None = None, refuses: str = "") -> StaticPolicy:
    """A policy whose classes set *values*; None: without classes."""
    if values is None:
        return StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0"}))
    return StaticPolicy(WithRules.model_validate({"reservedCpus": "0", "rules": Rules(values, refuses)}))


def container(name: str, milli: int = 100, **more: Any) -> Container:  # noqa: ANN401 (fields)
    """A container that is about to be created."""
    qos = QosClass.GUARANTEED if milli >= 1000 else QosClass.BURSTABLE
    return Container(key=f"r-{name}", pod=name, name=name, cpu_milli=milli, qos=qos, reservation=f"r-{name}", **more)


def created(node: Node, new: Container, under: StaticPolicy) -> Node:
    """The node after its create was answered."""
    node = step(node, ev.PodCreated(Pod(key=new.pod, uid=new.pod, qos=new.qos)), under).node
    node = step(node, ev.ContainerCreating(new), under).node
    return step(node, ev.ContainerCreated(new.key, new.name), under).node


def values(node: Node, key: str) -> dict[str, str]:
    """What classes set, or have set, for a container."""
    return dict(node.grants[key].controls.values)


EMPTY = Node(MACHINE)
WITH_POD = Node(n4c16(), pods={"p": Pod(key="p", namespace="shop", annotations={"cpu-quota.crio.io": "disable"})})


def policy_file() -> Policy:
    """The policy of a file with a class, on a machine with cgroup v2."""
    text = f"policy: topology-aware\nreservedCpus: 0\n{ALLOW}"
    text += "classes: {big: {for: {qos: [Burstable]}, memory: {high: 50%}}}\n"
    found = contents(text, Controllable()).settings
    assert found is not None
    return found.build_policy()


def test_a_container_has_what_its_class_sets_from_its_create_on() -> None:
    """The create message has it, so it is applied; with the reason."""
    decision = step(EMPTY, ev.ContainerCreating(container("a")), policy(HIGH))

    assert decision.grant
    assert dict(decision.grant.controls.values) == HIGH
    assert decision.grant.controls.class_of("memory") == "gold"
    assert "its class is gold" in decision.sentences
    assert decision.node.applied["r-a"] == granted(decision.grant)
    assert decision.node.applied["r-a"].memory_high == "104857600"


def test_who_moves_keeps_what_its_class_sets() -> None:
    """Also where the policy knows nothing of it, and makes a new grant."""
    node = created(EMPTY, container("a"), policy(HIGH))
    decision = step(node, ev.ContainerCreating(container("owner", 1000)), policy(HIGH))

    assert decision.node.grants["a"].cpus != node.grants["a"].cpus
    assert values(decision.node, "a") == HIGH


def test_a_new_policy_file_counts_for_all_at_once() -> None:
    """Whether or not containers are placed again: none moves, but each is updated; what is gone has its default."""
    node = created(EMPTY, container("a", memory_limit_bytes=1 << 30), policy({**HIGH, "memory.swap.max": "0"}))
    for apply_all in (False, True):
        event = ev.PolicyChanged(apply_all, "other")
        decision = step(node, event, policy(WEIGHT))
        assert values(decision.node, "a") == {**WEIGHT, "memory.high": "max", "memory.swap.max": "0"}
        assert [update.key for update in decision.updates] == ["a"]
        assert not decision.moving(node)
        without = step(decision.node, event, policy()).node
        assert values(without, "a") == {"cpu.weight": NATURAL, "memory.high": "max", "memory.swap.max": "0"}


def test_a_resize_sets_parts_of_the_new_limit() -> None:
    """Also one of the memory alone, after which nobody is placed again."""
    node = created(EMPTY, container("a", memory_limit_bytes=1 << 30), policy({"memory.high": "LIMIT"}))
    sizes = replace(node.containers["a"].sizes, memory_limit_bytes=1 << 31)
    assert values(step(node, ev.ContainerResized("a", sizes), policy({"memory.high": "LIMIT"})).node, "a") == {
        "memory.high": str(1 << 31)
    }


def test_the_kubelets_own_files_are_left_to_it() -> None:
    """From the create, or from a resize on; nothing is put back either."""
    theirs = container("a", kubelet_files=("memory.high",))
    node = created(EMPTY, theirs, policy({**HIGH, **WEIGHT}))
    assert values(node, "a") == WEIGHT
    sizes = replace(node.containers["a"].sizes, kubelet_files=("cpu.weight", "memory.high"))
    after = step(node, ev.ContainerResized("a", sizes), policy({**HIGH, **WEIGHT})).node
    assert (values(after, "a"), after.containers["a"].kubelet_files) == ({}, sizes.kubelet_files)


def test_a_release_puts_everything_back() -> None:
    """And its end gives everything again."""
    node = created(EMPTY, container("a"), policy({**HIGH, **WEIGHT}))
    released = step(node, ev.Released("somebody asked"), policy({**HIGH, **WEIGHT})).node
    assert values(released, "a") == {"memory.high": "max", "cpu.weight": NATURAL}

    free = step(released, ev.UpdateApplied("a", granted(released.grants["a"])), policy()).node
    assert "a" not in free.grants
    back = step(free, ev.PolicyChanged(apply_all=True), policy({**HIGH, **WEIGHT})).node
    assert values(back, "a") == {**HIGH, **WEIGHT}


def test_only_a_new_container_becomes_idle() -> None:
    """At each update of one with shares, runc writes a weight, which the kernel refuses; out of it, step by step."""
    node = created(created(EMPTY, container("old"), policy({})), container("idle"), policy({**IDLE, **WEIGHT}))
    assert values(node, "idle") == IDLE
    decision = step(node, ev.PolicyChanged(configuration="other"), policy(IDLE))
    assert (values(decision.node, "old"), values(decision.node, "idle")) == ({}, IDLE)

    after = step(node, ev.PolicyChanged(configuration="none"), policy()).node
    assert values(after, "idle") == {"cpu.idle": "0", "cpu.weight": NATURAL}
    first = target(after, "idle", frozenset())
    assert first
    assert (first.cpu_idle, first.cpu_weight) == ("0", None)
    after = step(after, ev.UpdateApplied("idle", first), policy()).node
    second = target(after, "idle", frozenset())
    assert second
    assert (second.cpu_idle, second.cpu_weight) == ("0", NATURAL)


def test_a_class_that_there_is_not_refuses_new_containers_only() -> None:
    """Others keep what they have."""
    node = created(EMPTY, container("a"), policy(HIGH))
    with pytest.raises(BadAnnotation):
        step(EMPTY, ev.ContainerCreating(container("a")), policy(WEIGHT, refuses="a"))
    after = step(node, ev.PolicyChanged(configuration="other"), policy(WEIGHT, refuses="a")).node
    assert values(after, "a") == HIGH


def test_classes_are_not_asked_where_the_policy_is_not() -> None:
    """During an automatic bypass, new containers have none, and others keep theirs."""
    node = created(EMPTY, container("a"), policy(HIGH))
    fallback = Fallback(policy(WEIGHT).options)
    after = step(node, ev.ContainerCreating(container("b")), fallback).node
    assert (values(after, "a"), after.grants["r-b"].controls) == (HIGH, NO_CONTROLS)


def test_without_a_policy_everything_is_put_back() -> None:
    """Whoever keeps its place has the defaults."""
    node = created(EMPTY, container("a"), policy(HIGH))
    after = step(node, ev.PolicyChanged(configuration="none"), NonePolicy(policy(HIGH).options)).node
    assert values(after, "a") == {"memory.high": "max"}


def test_who_is_adopted_has_its_class_and_loses_what_criproxy_had_set() -> None:
    """The runtime tells which files it was given, the stamp which of these are the kubelet's."""
    there = replace(container("a"), key="a", state=ContainerState.RUNNING)
    present = ev.Present(there, Applied(MACHINE.cpus, MACHINE.mems), (("memory.low", "4096"),))
    after = step(EMPTY, ev.Found(containers=(present,)), policy(HIGH)).node
    assert values(after, "a") == {**HIGH, "memory.low": "0"}


SETS = st.one_of(
    st.none(), st.dictionaries(st.sampled_from([file for file in DEFAULTS if file != "cpu.idle"]), st.just("50"))
)
HAPPENINGS = st.lists(st.tuples(st.sampled_from(["policy", "all", "release", "resize", "owner", "applied"]), SETS))


@given(SETS, HAPPENINGS)
def test_what_was_set_once_is_never_forgotten(first: Mapping[str, str] | None, happenings: list[Any]) -> None:
    """Whatever happens, a file that a class has set is in the grant, until the container is released."""
    under = policy(first)
    node = created(EMPTY, container("a"), under)
    seen = set(values(node, "a"))
    for number, (what, sets) in enumerate(happenings):
        if what in ("policy", "all"):
            under = policy(sets)
            node = step(node, ev.PolicyChanged(what == "all", f"{number}"), under).node
        elif what == "release":
            node = step(node, ev.Released("asked"), under).node
            assert all(value in (DEFAULTS[file], NATURAL) for file, value in values(node, "a").items())
        elif what == "resize":
            sizes = replace(node.containers["a"].sizes, cpu_milli=100 + number)
            node = step(node, ev.ContainerResized("a", sizes), under).node
        elif what == "owner" and number < 3:
            node = created(node, container(f"owner{number}", 1000), under)
        elif what == "applied" and not node.released:
            node = step(node, ev.UpdateApplied("a", granted(node.grants["a"])), under).node
        assert seen <= set(values(node, "a"))
        seen |= set(values(node, "a"))


def test_a_real_policy_file_says_what_a_container_has_and_why() -> None:
    """50 % of its memory limit, by its QoS class."""
    decision = step(WITH_POD, ev.ContainerCreating(asking()), policy_file())
    assert values(decision.node, "c") == {"memory.high": str(50 * MIB)}
    assert any("has the class big for memory" in sentence for sentence in decision.sentences)


def test_cri_os_annotation_lifts_the_quota_on_exclusive_cpus_only() -> None:
    """As CRI-O does it, where the namespace may use cpu-class."""
    owner, without = asking(qos=QosClass.GUARANTEED, cpu_milli=1000), WITH_POD.replace(pods={"p": Pod(key="p")})
    quotas = [
        step(node, ev.ContainerCreating(each), policy_file()).node.grants["c"].quota
        for node, each in ((WITH_POD, owner), (WITH_POD, asking()), (without, owner))
    ]
    assert quotas == [CpuQuota.LIFTED, CpuQuota.LEFT, CpuQuota.LEFT]


def test_each_file_has_a_row() -> None:
    """In the order of the table of defaults."""
    assert [row.noun for row in FILES] == list(DEFAULTS)


def test_the_history_says_what_classes_set() -> None:
    """For programs, too: the class and the files of each grant; nothing without classes."""
    event = ev.ContainerCreating(container("a"))
    (classed,), (plain,) = (entries_of(EMPTY, event, step(EMPTY, event, by)) for by in (policy(HIGH), policy()))

    assert classed.facts["classes"] == {"memory": "gold"}
    assert classed.facts["files"] == HIGH
    assert plain.facts.keys().isdisjoint({"classes", "files"})
    assert as_facts("had_", Applied(frozenset({1}), frozenset({0}), cpu_weight="200"))["had_files"] == WEIGHT


def test_the_log_says_that_classes_are_the_reason() -> None:
    """Of an update that changes no CPUs."""
    node, event = created(EMPTY, container("a"), policy(HIGH)), ev.PolicyChanged(False, "other")
    line = log_line(event, node, step(node, event, policy(WEIGHT)))

    assert line is not None
    assert ": what its classes set" in str(line[1]["moves"])
