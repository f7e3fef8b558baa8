"""What classes set through the runtime: decided with real policy files, from the create to the release."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import BadAnnotation
from criproxy.model.attributes import granted, in_place
from criproxy.model.controls import DEFAULTS
from criproxy.model.grant import CpuQuota
from criproxy.model.machine.controllable import Controllable
from criproxy.model.node import Node
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.policies.api import Policy
from tests.placement.classes.policy import ALLOW, MIB, contents
from tests.placement.policies.shapes import n4c16

HIGH, WEIGHT, BURST = "memory.high", "cpu.weight", "cpu.max.burst"
MEMORY = "classes: {big: {for: {qos: [Burstable]}, memory: {high: 50%}}}\n"
KEY = "r-main"


def policy_of(text: str = "") -> Policy:
    """The policy topology-aware of a file with this text, on a machine with cgroup v2."""
    found = contents(f"policy: topology-aware\nreservedCpus: 0\n{text}", Controllable())
    assert found.settings is not None, [mistake.sentence for mistake in (*found.wrong, *found.unfit)]
    return found.settings.build_policy()


def new(qos: QosClass = QosClass.BURSTABLE, **more: object) -> Container:
    """One with 100 MiB and a CPU, for which the kubelet asks."""
    sizes = {
        "cpu_milli": 1000,
        "cpu_limit_milli": 1000,
        "cpu_quota": CfsQuota(100_000),
        "memory_limit_bytes": 100 * MIB,
    }
    sizes |= {"memory_request_bytes": Interval(40 * MIB, 40 * MIB)}
    return Container(**{"key": KEY, "pod": "s", "name": "main", "namespace": "shop", "qos": qos, **sizes, **more})  # type: ignore[arg-type]


def with_pod(**annotations: str) -> Node:
    """A node with the pod of `new`; keys have the domain criproxy.io, or their own."""
    names = {
        (key if "/" in key or key.count(".") > 1 else f"{key}.criproxy.io/pod"): v for key, v in annotations.items()
    }
    return Node(n4c16(), pods={"s": Pod(key="s", name="web", namespace="shop", annotations=names)})


def after(node: Node, policy: Policy, *events: ev.Event) -> Node:
    """The node after *events*."""
    for event in events:
        node = step(node, event, policy).node
    return node


def values(node: Node) -> dict[str, str]:
    """The files of the container."""
    return dict(node.grants[KEY].controls.values)


def test_a_create_has_what_the_class_sets_and_says_why() -> None:
    """The runtime applies it with the container, so that nothing has to be updated."""
    decision = step(with_pod(), ev.ContainerCreating(new()), policy_of(MEMORY))
    grant, applied = decision.node.grants[KEY], decision.node.applied[KEY]

    assert values(decision.node) == {HIGH: str(50 * MIB)}
    assert (grant.controls.class_of("memory"), applied.memory_high) == ("big", str(50 * MIB))
    assert (in_place(grant, applied), decision.updates) == (True, ())
    assert any("has the class big for memory" in sentence for sentence in decision.sentences)


def test_without_classes_a_grant_has_no_controls() -> None:
    """And none of its files is read or written."""
    node = after(with_pod(), policy_of(), ev.ContainerCreating(new()))
    assert node.grants[KEY].controls.values == node.grants[KEY].controls.classes == ()


def test_a_new_policy_file_counts_for_all_and_moves_nobody() -> None:
    """The old class's file gets its default, and keeps it: it is put back even if an update is lost."""
    node = after(with_pod(), policy_of(MEMORY), ev.ContainerCreating(new()), ev.ContainerCreated(KEY, "c1"))
    other = step(node, ev.PolicyChanged(), policy_of("classes: {slow: {for: {qos: [Burstable]}, cpu: {weight: 10}}}\n"))

    grant = other.node.grants["c1"]
    assert dict(grant.controls.values) == {HIGH: "max", WEIGHT: "10"}
    assert (grant.cpus, grant.mems) == (node.grants["c1"].cpus, node.grants["c1"].mems)
    assert [update.key for update in other.updates] == ["c1"]
    none = step(other.node, ev.PolicyChanged(), policy_of())
    assert set(dict(none.node.grants["c1"].controls.values)) == {HIGH, WEIGHT}
    assert step(none.node, ev.PolicyChanged(), policy_of()).updates == ()


def test_a_resize_changes_what_depends_on_the_size() -> None:
    """50 % of the limit, without another place."""
    policy = policy_of(MEMORY)
    node = after(with_pod(), policy, ev.ContainerCreating(new()))
    resized = step(node, ev.ContainerResized(KEY, new(memory_limit_bytes=60 * MIB).sizes), policy)
    assert values(resized.node) == {HIGH: str(30 * MIB)}


def test_a_container_that_makes_way_keeps_what_its_class_sets() -> None:
    """Others that move for a new container have their classes' files still, and their update does not lose them."""
    policy = policy_of(MEMORY)
    node = after(with_pod(), policy, ev.ContainerCreating(new()))
    owner = new(QosClass.GUARANTEED, key="r-o", name="o", cpu_milli=2000, cpu_limit_milli=2000, cpu_quota=None)
    moved = after(node, policy, ev.ContainerCreating(owner))
    assert moved.grants["r-o"].exclusive
    assert values(moved) == {HIGH: str(50 * MIB)}


def test_a_release_gives_each_file_its_default() -> None:
    """And the end of the release what the class sets."""
    policy = policy_of(MEMORY)
    node = after(with_pod(), policy, ev.ContainerCreating(new()), ev.ContainerCreated(KEY, "c1"))
    released = step(node, ev.Released("by hand"), policy)
    assert dict(released.node.grants["c1"].controls.values) == {HIGH: "max"}
    assert granted(released.node.grants["c1"]).memory_high == "max"
    back = after(released.node, policy, ev.PolicyChanged())
    assert dict(back.grants["c1"].controls.values) == {HIGH: str(50 * MIB)}


def test_a_file_that_the_kubelet_sets_is_left_to_it() -> None:
    """MemoryQoS of the kubelet comes first, and the reasons say so."""
    decision = step(with_pod(), ev.ContainerCreating(new(kubelet_files=(HIGH,))), policy_of(MEMORY))
    assert values(decision.node) == {}
    assert any("the kubelet sets memory.high itself" in sentence for sentence in decision.sentences)


def test_a_class_that_there_is_not_refuses_the_create() -> None:
    """With what would be right; without the right to name one, the annotation is ignored."""
    node, text = with_pod(**{"class": "huge"}), "classes: {big: {memory: {high: 50%}}}\n"
    with pytest.raises(BadAnnotation, match="there is no class 'huge'"):
        step(node, ev.ContainerCreating(new()), policy_of(ALLOW + text))
    ignored = step(node, ev.ContainerCreating(new()), policy_of(text))
    assert values(ignored.node) == {}
    assert any("may not use class" in sentence for sentence in ignored.sentences)


def test_cri_os_annotation_lifts_the_quota_on_exclusive_cpus_only() -> None:
    """As CRI-O does it, where the namespace may use cpu-class."""
    policy = policy_of(ALLOW + MEMORY)
    node = with_pod(**{"cpu-quota.crio.io": "disable"})
    owner = new(QosClass.GUARANTEED)
    assert after(node, policy, ev.ContainerCreating(owner)).grants[KEY].quota is CpuQuota.LIFTED
    assert after(node, policy, ev.ContainerCreating(new())).grants[KEY].quota is CpuQuota.LEFT
    assert after(with_pod(), policy, ev.ContainerCreating(owner)).grants[KEY].quota is CpuQuota.LEFT


FILES = [
    MEMORY,
    "",
    "classes: {slow: {for: {qos: [Burstable]}, cpu: {weight: 10, burst: 20%}}}\n",
    "classes: {idle: {for: {namespaces: [shop]}, cpu: {idle: true}, memory: {oomGroup: true, swapMax: 0}}}\n",
]
EVENTS = st.one_of(
    st.sampled_from(FILES),
    st.just("release"),
    st.integers(10, 200).map(lambda mib: new(memory_limit_bytes=mib * MIB).sizes),
)


@given(st.lists(EVENTS, max_size=8))
def test_a_file_once_set_has_its_default_again_or_a_class_that_sets_it(happenings: list[object]) -> None:
    """Whatever happens in whatever order: nothing that a class has set is forgotten."""
    policy = policy_of(MEMORY)
    node = after(with_pod(), policy, ev.ContainerCreating(new()), ev.ContainerCreated(KEY, "c1"))
    ever = set(dict(node.grants["c1"].controls.values))
    for happening in happenings:
        if isinstance(happening, str) and happening != "release":
            policy = policy_of(happening)
            node = after(node, policy, ev.PolicyChanged())
        elif happening == "release":
            node = after(node, policy, ev.Released("by hand"))
        else:
            node = after(node, policy, ev.ContainerResized("c1", happening))  # type: ignore[arg-type]
        if "c1" in node.grants:
            now = dict(node.grants["c1"].controls.values)
            ever |= now.keys()
            assert ever <= now.keys()
            assert now.keys() <= DEFAULTS.keys()
