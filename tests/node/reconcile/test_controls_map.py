"""What the service is told change by change is what it would be told at once, whatever happens on the node."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.controls.protocol import Changes, parse_apply
from criproxy.errors import Refused
from criproxy.host.cgroup import ContainerGroup
from criproxy.model.controls import ContainerControls, Desired
from criproxy.model.node import Node
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container, Pod, QosClass, Sizes
from criproxy.node.reconcile import controls_map
from criproxy.node.reconcile.controls_map import ControlsMap
from criproxy.placement import events
from criproxy.placement.answers.desired_controls import controls_of
from criproxy.placement.engine import step
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from tests.placement.classes.policy import contents
from tests.placement.classes.test_fit import FULL

CLASSES = """
idleCPUClass: slow
classes:
  fast: {for: {namespaces: [fast]}, cpu: {governor: performance, burst: 20%}, scheduling: {nice: 1}}
  slow: {for: {qos: [BestEffort]}, cpu: {maxFreq: min}, irq: sink}
  quiet: {for: {namespaces: [quiet]}, irq: {mode: away, claim: [nic*]}, rdt: {l3: 50%}}
"""
FILES = (
    f"policy: topology-aware{CLASSES}",
    f"policy: static{CLASSES}",
    "policy: topology-aware\nclasses: {fast: {for: {namespaces: ['*']}, scheduling: {nice: 2}}}",
    "policy: topology-aware",
    "policy: none",
)
V1 = replace(FULL, unified=False, v1_burst=True)
"""With cgroup v1, the service applies the burst, which depends on the CPU limit."""
NAMESPACES = ("fast", "quiet", "other")


def policy(text: str) -> Policy:
    """The policy of a file."""
    reserved = "" if text.endswith("none") else '\nreservedCpus: "0"'
    found = contents(text + reserved, V1, machine())
    assert found.settings is not None, [*found.wrong, *found.unfit]
    return found.settings.build_policy()


POLICIES = [*map(policy, FILES)]


@dataclass
class There:
    """A node to which events happen, the map that follows it, and what the service has of that."""

    node: Node = field(default_factory=lambda: Node(machine(nodes=2, cores=4, threads=1)))
    policy: Policy = POLICIES[0]
    passes_all: bool = False
    groups: dict[str, ContainerGroup] = field(default_factory=dict)
    has: Desired | None = None
    generation: int = 0
    map: ControlsMap = field(init=False)

    def __post_init__(self) -> None:
        self.map = self.new_map()

    def new_map(self) -> ControlsMap:
        """One that has seen nothing yet."""
        context: Any = SimpleNamespace(state=self, cgroups=self, is_before_change=False)
        return ControlsMap(context, lambda: True)

    # ---------------------------------------------------------------- what happens

    def happens(self, *what: events.Event) -> None:
        """Apply events, unless they are refused."""
        try:
            for event in what:
                self.node = step(self.node, event, self.policy).node
        except Refused:
            pass

    def comes(self, number: int) -> None:
        """A container with its pod; it starts, and its cgroup is known then, with some numbers only."""
        name = f"{len(self.node.pods)}-{number}"
        qos, namespace = [*QosClass][number % 3], NAMESPACES[number // 3 % 3]
        milli = 0 if qos is QosClass.BEST_EFFORT else 1000
        container = Container(
            key=f"r{name}",
            pod=f"s{name}",
            name="main",
            namespace=namespace,
            qos=qos,
            cpu_milli=milli,
            cpu_limit_milli=milli or None,
            cpu_quota=CfsQuota(100 * milli) if milli else None,
        )
        pod = Pod(key=f"s{name}", uid=name, namespace=namespace, cgroup_parent=f"/kubepods/pod{name}")
        created = (events.ContainerCreating(container), events.ContainerCreated(container.key, name))
        self.happens(events.PodCreated(pod), *created[: 1 + number % 8])
        if number % 4 and name in self.node.containers:
            self.groups[name] = ContainerGroup("/", cgroup(name), unified=False)
            self.happens(events.ContainerStarted(name))

    def _one(self, number: int) -> str:
        keys = [*self.node.containers]
        return keys[number % len(keys)] if keys else "nobody"

    def exits(self, number: int) -> None:
        """A container ends."""
        self.happens(events.ContainerExited(self._one(number)))

    def goes(self, number: int) -> None:
        """A container is removed."""
        key = self._one(number)
        self.groups.pop(key, None)
        self.happens(events.ContainerGone(key))

    def is_resized(self, number: int) -> None:
        """All containers get another size."""
        milli = 500 * (1 + number % 5)
        sizes = Sizes(cpu_milli=milli, cpu_limit_milli=milli, cpu_quota=CfsQuota(100 * milli))
        for key in self.node.containers:
            self.happens(events.ContainerResized(key, sizes))

    def is_reloaded(self, number: int) -> None:
        """Another policy file."""
        self.policy = POLICIES[number % len(POLICIES)]
        self.happens(events.PolicyChanged(apply_all=bool(number % 2)))

    def is_released(self, number: int) -> None:
        """``criproxy release``, and its end."""
        self.happens(events.PolicyChanged(apply_all=True) if self.node.released else events.Released("by a user"))

    def is_bypassed(self, number: int) -> None:
        """``criproxy bypass on``, and its end."""
        self.passes_all = not self.passes_all

    def loses_cpu(self, number: int) -> None:
        """A CPU goes offline, and another one comes back."""
        whole = machine(nodes=2, cores=4, threads=1)
        left = machine(nodes=2, cores=4, threads=1, allowed=whole.cpus - {1 + number % 7})
        self.happens(events.TopologyChanged(left))

    def finds(self, number: int) -> None:
        """The runtime tells the cgroups that were not known."""
        for key in [*self.map.unplaced]:
            self.map.set_cgroup(key, cgroup(key))

    # ---------------------------------------------------------------- what the service is told

    def tells(self) -> None:
        """Send what the service does not have, as the daemon does."""
        self.map.update()
        self.generation += 1
        if self.has is None:
            self.has = self.map.take_all()
            return
        changes = {"generation": self.generation, "after": self.generation - 1, **self.map.take_changes()}
        _, parsed = parse_apply(changes)
        assert isinstance(parsed, Changes)
        self.has = parsed.applied_to(self.has)

    def whole(self) -> tuple[Desired, set[str]]:
        """What a daemon that starts now would send, and which cgroups it does not know."""
        fresh = self.new_map()
        fresh.update()
        for key in fresh.unplaced - self.map.unplaced:
            fresh.set_cgroup(key, cgroup(key))
        return fresh.take_all(), fresh.unplaced


def cgroup(key: str) -> str:
    """That of a container."""
    return f"kubepods/pod{key}/{key}"


HAPPENINGS: tuple[Callable[[There, int], None], ...] = (
    There.comes,
    There.comes,
    There.exits,
    There.goes,
    There.is_resized,
    There.is_reloaded,
    There.is_released,
    There.is_bypassed,
    There.loses_cpu,
    There.finds,
)
NUMBERS = st.integers(0, 60)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(NUMBERS, min_size=4, max_size=8), st.lists(st.tuples(st.sampled_from(HAPPENINGS), NUMBERS, st.booleans()))
)
def test_changes_add_up_to_what_is_desired(
    first: list[int], happenings: list[tuple[Callable[[There, int], None], int, bool]]
) -> None:
    """Over creates, removals, resizes, reloads, release, bypass and CPUs that go, told at once or together."""
    there = There()
    for number in first:
        there.comes(number)
    there.tells()
    for happens, number, is_told in happenings:
        happens(there, number)
        there.map.update()
        if is_told:
            there.tells()
            assert (there.has, there.map.unplaced) == there.whole()
            assert not there.node.released or there.has == Desired(), "a release leaves nothing, whatever its kind"
            assert not there.map.update()


def test_containers_that_only_move_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner takes a CPU from all others: what the service applies to them stays."""
    there, looked = There(), list[str]()
    for number in (10, 19, 28, 37):
        there.comes(number)
    there.tells()

    def counted(container: Container, *rest: Any) -> ContainerControls | None:  # noqa: ANN401 (as of the function)
        looked.append(container.key)
        return controls_of(container, *rest)

    monkeypatch.setattr(controls_map, "controls_of", counted)
    before = dict(there.node.grants)
    there.comes(27)
    moved = [key for key, grant in before.items() if there.node.grants[key] is not grant]
    there.tells()
    assert len(moved) > 1
    assert not {*looked}.intersection(moved)
    assert there.has == there.whole()[0]
