"""What a step costs where more than usual has to be looked at: annotated pods, hundreds of balloons, a new policy."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.events import ContainerCreating, ContainerGone, ContainerResized, PolicyChanged
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import GIB
from lab.bench.engine import (
    CONTAINERS,
    WIDE,
    Make,
    StepLine,
    build,
    filled,
    large_machine,
    line,
    time_ms,
    times_ms,
    usual,
)

BALLOONS = 341
"""Of one CPU each: with the reserved ones, nearly all that the machine has."""
_ANNOTATIONS = {
    "hide-hyperthreads.criproxy.io": "true",
    "affinity.criproxy.io": "new: [sidecar]\nsidecar: [new]",
    "anti-affinity.criproxy.io": (
        "new: [{scope: {operator: AlwaysTrue}, match: {key: pod/labels/app, operator: In, values: [a]}, weight: 5}]"
    ),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A policy, the containers that it has placed, and one more of them."""

    policy: str
    options: Mapping[str, object]
    containers: Callable[[], list[Container]]
    newcomer: Container
    pods: Callable[[], list[Pod]] = list


def _annotated() -> list[Pod]:
    return [
        Pod(key=f"s{number}", labels={"app": "abc"[number % 3]}, annotations=_ANNOTATIONS)
        for number in range(CONTAINERS // 2 + 1)
    ]


def _small(number: int) -> Container:
    size = GIB // 4
    return Container(
        key=f"r{number}",
        pod=f"s{number}",
        name="main",
        namespace="team",
        qos=QosClass.BURSTABLE,
        cpu_milli=900,
        memory_limit_bytes=size,
    )


SCENES: Mapping[str, Scene] = {
    "250 pods that hide threads, with affinities": Scene(
        "topology-aware",
        {},
        lambda: usual(CONTAINERS),
        replace(usual(1)[0], key="new", name="new", pod=f"s{CONTAINERS // 2}"),
        _annotated,
    ),
    f"{BALLOONS} balloons that are lent idle CPUs": Scene(
        "balloons",
        {
            "balloonTypes": [
                {"name": "own", "namespaces": ["team"], "preferNewBalloons": True, "shareIdleCPUsInSame": "numa"}
            ]
        },
        lambda: [_small(number) for number in range(BALLOONS)],
        replace(_small(BALLOONS), key="new", name="new"),
    ),
}


def _resized(node: Node, number: int) -> ContainerResized:
    key = f"id{number % len(node.containers)}"
    sizes = node.containers[key].sizes
    return ContainerResized(key, replace(sizes, cpu_milli=sizes.cpu_milli + 1000))


EVENTS: Mapping[str, tuple[Callable[[Container], Make], bool]] = {
    "comes": (lambda newcomer: lambda node, number: ContainerCreating(newcomer), True),
    "resized": (lambda newcomer: _resized, True),
    "goes": (lambda newcomer: lambda node, number: ContainerGone(f"id{8 * number % len(node.containers)}"), True),
    "policy changed for all": (lambda newcomer: lambda node, number: PolicyChanged(apply_all=True), False),
}


def measure(repeats: int) -> Iterator[StepLine]:
    """Each scene, and for each policy the first container that it ever places."""
    for title, scene in SCENES.items():
        policy, containers = build(scene.policy, scene.options), scene.containers()
        node = filled(policy, containers, scene.pods())
        for verb, (make, has_bar) in EVENTS.items():
            times = times_ms(node, make(scene.newcomer), policy, repeats if has_bar else max(repeats // WIDE, 2))
            yield replace(line(scene.policy, f"{title}: {verb}", times, has_bar=has_bar), containers=len(containers))
    for name in BUILTIN:
        yield _first(name, max(repeats // WIDE, 2))


def _first(name: str, repeats: int) -> StepLine:
    """The first container on a machine that a policy has not seen: once in its life, so the bars are not for it."""
    node, event = Node(large_machine()), ContainerCreating(usual(1)[0])
    times = (time_ms(node, event, build(name, {})) for _ in range(repeats))
    return replace(line(name, "the first of all", times, has_bar=False), containers=0)
