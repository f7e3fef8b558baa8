"""While a changed policy, a release or its end moves everybody, nobody gets CPUs that another still has."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.attributes import in_place
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.node.reconcile.excess_cpus import ExcessCpus, blockers_of
from criproxy.placement.decision import target
from criproxy.placement.engine import step
from criproxy.placement.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerStarted,
    Event,
    PolicyChanged,
    Released,
    UpdateApplied,
)
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from tests.node.reconcile.test_target import starting

MACHINE = machine(nodes=2, cores=6, threads=1)
POLICIES: list[Policy] = [
    StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0", "cpuQuota": "lift"})),
    StaticPolicy(StaticOptions.model_validate({"reservedCpus": "1-2,4"})),
    TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "7"})),
    TopologyAwarePolicy(TopologyAwareOptions.model_validate({"preferSharedCPUs": True})),
    NonePolicy(Options()),
]
CONTAINERS, RUNNING = 8, 5
"""All, and those that run from the beginning."""


@dataclass(slots=True)
class Scene:
    """A node, and what the kernel has, which is not always what the node knows."""

    node: Node = field(default_factory=lambda: Node(MACHINE))
    policy: Policy = POLICIES[0]
    kernel: dict[str, CpuSet] = field(default_factory=dict)

    def happen(self, event: Event) -> None:
        """Step, if that is not refused."""
        try:
            decision = step(self.node, event, self.policy)
        except NotEnough:
            return
        self.node = decision.node
        match event:
            case ContainerCreating(container):
                self.kernel[f"id-{container.key}"] = decision.grant.cpus if decision.grant else MACHINE.cpus
            case ContainerStarted(key) if key in self.kernel:  # its create was not refused
                self._assert_free(key, self.kernel[key])

            case PolicyChanged() if not isinstance(self.policy, NonePolicy):
                homeless = self.node.containers.keys() - self.node.grants.keys()
                assert all(self.node.containers[key].state is ContainerState.EXITED for key in homeless)

    def may_happen(self, event: Event) -> bool:
        """A start is held while others are in the way or the container is not where it belongs; all else happens."""
        if not isinstance(event, ContainerStarted) or event.key not in self.node.grants:
            return True
        over = ExcessCpus(starting(event.key)).of(self.node)
        return event.key not in over.by_key and not blockers_of(self.node, event.key, over)

    def update(self, key: str) -> bool:
        """Tell a container what it may have now; whether there was something to tell."""
        if key not in self.node.grants or key == self.node.containers[key].reservation:
            return False
        wanted = target(self.node, key, ExcessCpus().of(self.node).others(key))
        if wanted is None:
            return False
        if key in self._running():
            self._assert_free(key, wanted.cpus - self.kernel[key])
        assert not wanted.lifted or wanted.cpus <= self.node.grants[key].exclusive
        self.kernel[key] = wanted.cpus
        self.happen(UpdateApplied(key, wanted))
        return True

    def _running(self) -> Iterator[str]:
        return (key for key, each in self.node.containers.items() if each.state is ContainerState.RUNNING)

    def _assert_free(self, key: str, gained: CpuSet) -> None:
        """Of what *key* gains, nothing is another's own, and of what is its own, nobody else is there any more.

        Whom the policy none leaves alone is everywhere: that is what none means.
        """
        own = self.node.grants[key].exclusive if key in self.node.grants else NO_CPUS
        for other in self._running():
            if other != key and other in self.node.grants:
                there = self.kernel[other] & gained
                assert there.isdisjoint(own), f"{other} is still on CPUs that {key} owns"
                assert key not in self.node.grants or there.isdisjoint(self.node.grants[other].exclusive)


def steps_of(number: int) -> list[Event]:
    """The life of one container; most own CPUs."""
    key, milli = f"r{number}", (1000, 2000, 500)[number % 3]
    container = Container(key=key, pod="s", name=key, qos=QosClass.GUARANTEED, cpu_milli=milli)
    made: list[Event] = [
        ContainerCreating(container),
        ContainerCreated(key, f"id-{key}"),
        ContainerStarted(f"id-{key}"),
    ]
    return [*made, ContainerExited(f"id-{key}")]


progress = st.integers(0, CONTAINERS - 1)
changes = st.tuples(st.sampled_from(POLICIES), st.booleans())
updates = st.integers(0, 50).map(lambda number: f"update {number}")
release = st.just("release")


@settings(max_examples=60, deadline=None)
@example([(POLICIES[4], True), (POLICIES[3], True)])  # those who share change places, each on the way of the others
@given(st.lists(st.one_of(progress, progress, updates, updates, changes, release), min_size=12, max_size=50))
def test_nobody_gains_what_another_still_has(order: list[int | str | tuple[Policy, bool]]) -> None:
    """Steps of containers, policies for newcomers or all, releases and updates in any order; in the end all arrive."""
    scene = Scene()
    lives = [steps_of(number) for number in range(CONTAINERS)]
    for life in lives[:RUNNING]:
        for _ in range(3):
            scene.happen(life.pop(0))
            assert_settles(scene)
    for item in order:
        match item:
            case int(number) if lives[number] and scene.may_happen(lives[number][0]):
                scene.happen(lives[number].pop(0))
            case "release":
                scene.happen(Released("somebody asked for it"))
            case str(word) if scene.node.grants:
                keys = list(scene.node.grants)
                scene.update(keys[int(word.split()[1]) % len(keys)])
            case (StaticPolicy() | TopologyAwarePolicy() | NonePolicy() as policy, bool(apply_all)):
                scene.policy = policy
                scene.happen(PolicyChanged(apply_all))
    assert_settles(scene)


def assert_settles(scene: Scene) -> None:
    """Once all updates are through, everybody has what was granted, or was let go."""
    for _ in range(3 * len(scene.node.grants)):
        for key in list(scene.node.grants):
            scene.update(key)
    node = scene.node
    for key, grant in node.grants.items():
        made = key != node.containers[key].reservation
        assert not made or (in_place(grant, node.applied.get(key)) and scene.kernel[key] == grant.cpus)
    if node.released:
        assert all(scene.kernel[key] == MACHINE.cpus for key in scene._running())
