"""A node under the policy ``balloons``, to which pods come and from which they go, as short as tests want it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.policies.balloons import BalloonsOptions, BalloonsPolicy
from criproxy.placement.policies.balloons.kinds import catalogue
from criproxy.placement.policies.balloons.state import State, read


@dataclass
class World:
    """A node; each step checks what must always be true of balloons."""

    topology: Topology
    options: dict[str, Any]
    node: Node = field(init=False)
    reasons: tuple[str, ...] = ()
    """Of the last step."""

    def __post_init__(self) -> None:
        self.policy = BalloonsPolicy(BalloonsOptions.model_validate(self.options))
        self.node = Node(self.topology)

    def come(self, name: str, milli: int = 0, **more: Any) -> str:  # noqa: ANN401
        """A container of a pod of its own (or of *pod*) comes; the CPUs that it may use."""
        pod, namespace = more.pop("pod", name), more.pop("namespace", "default")
        known = {"annotations": more.pop("annotations", {}), "labels": more.pop("labels", {})}
        if pod not in self.node.pods:
            self._step(ev.PodCreated(Pod(key=pod, name=pod, namespace=namespace, **known)))
        qos = QosClass.BURSTABLE if milli else QosClass.BEST_EFFORT
        self._step(ev.ContainerCreating(Container(key=name, pod=pod, name=name, pod_name=pod, namespace=namespace,
                                               qos=more.pop("qos", qos), cpu_milli=milli, **more)))  # fmt: skip
        return self.cpus(name)

    def go(self, *names: str) -> None:
        """Containers leave."""
        for name in names:
            self._step(ev.ContainerGone(name))

    def end(self, pod: str) -> None:
        """A pod goes with all its containers."""
        self._step(ev.PodGone(pod))

    def resize(self, name: str, milli: int) -> str:
        """A container gets another size; the CPUs that it may use then."""
        self._step(ev.ContainerResized(name, Sizes(cpu_milli=milli)))
        return self.cpus(name)

    def change(self, *, apply_all: bool) -> None:
        """The policy takes over from another one."""
        self._step(ev.PolicyChanged(apply_all))

    def cpus(self, name: str) -> str:
        """The CPUs that a container may use; empty where it was left alone."""
        return format_cpuset(self.node.grants[name].cpus) if name in self.node.grants else ""

    def pool(self, name: str) -> str:
        """The balloon of a container."""
        return self.node.grants[name].pool

    def state(self) -> State:
        """All balloons."""
        seen = self.policy.options.within(self.node)
        return read(catalogue(self.policy.options, seen.topology), seen, self.node.grants)

    def balloons(self) -> dict[str, str]:
        """The CPUs of each balloon, those without containers included."""
        return {name: format_cpuset(balloon.home) for name, balloon in self.state().balloons.items()}

    def _step(self, event: Any) -> None:  # noqa: ANN401
        decision = step(self.node, event, self.policy)
        self.node, self.reasons = decision.node, decision.sentences
        wrong = [*violations(self.node), *wrong_balloons(self.node, self.state())]
        assert not wrong, wrong


def wrong_balloons(node: Node, state: State) -> Iterator[str]:
    """What is not as it must be: CPUs of two balloons, lent CPUs that are not idle, sizes that do not suit."""
    seen: CpuSet = frozenset()
    for balloon in state.balloons.values():
        if balloon.home & seen:
            yield f"{balloon.name} has CPUs {format_cpuset(balloon.home & seen)} of another balloon"
        seen |= balloon.home
    for balloon in state.balloons.values():
        kind = balloon.kind
        sizes = kind.sizes(balloon.milli)
        if balloon.keys and not kind.overbooked and (sizes is None or sum(sizes) != len(balloon.home)):
            yield f"{balloon.name} has {len(balloon.home)} CPUs for {balloon.milli}m, and should have {sizes}"
        for key in balloon.keys if state.catalogue.options.pin_cpu else ():
            grant = node.grants[key]
            if foreign := grant.cpus & (seen - balloon.home):
                yield f"{key} of {balloon.name} runs on CPUs {format_cpuset(foreign)} of another balloon"
            if grant.cpus - balloon.home and kind.type.share_idle_cpus_in_same is None:
                yield f"{key} of {balloon.name} runs on CPUs beside those of its balloon"
    for kind in state.catalogue.kinds:
        if kind.type.max_balloons and len(state.of(kind)) > kind.type.max_balloons:
            yield f"there are {len(state.of(kind))} balloons of type {kind.name}"
