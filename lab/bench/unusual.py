"""What a step costs where more than usual has to be looked at: annotated pods, hundreds of balloons, a new policy.

And what memory costs within a step: 500 containers with limits on 8 NUMA nodes, with room and without.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from criproxy.model.grant import Grant
from criproxy.model.node import Node, without
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.alloc.memory.place_memory import place_memory, return_memory
from criproxy.placement.events import ContainerCreating
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import GIB
from lab.bench import engine
from lab.bench.bars import MEMORY_MS, STEP_P99_MS
from lab.figures import Figure

BALLOONS = 341
"""Of one CPU each: with the reserved ones, nearly all that the machine has."""
ROOMY_MIB, FULL_MIB = 256, 2700
"""Limits: of the larger ones, 500 are more than the machine has."""
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
        for number in range(engine.CONTAINERS // 2 + 1)
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
        lambda: engine.usual(engine.CONTAINERS),
        replace(engine.usual(1)[0], key="new", name="new", pod=f"s{engine.CONTAINERS // 2}"),
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


USUAL = {"resized": "resize", "goes": "gone", "policy changed for all": "policy changed for all"}
"""What happens to a scene beside its newcomer, and what `engine` calls it."""


def measure(repeats: int) -> Iterator[Figure]:
    """Each scene, and for each policy the first container that it ever places."""
    for title, scene in SCENES.items():
        policy, containers = engine.build(scene.policy, scene.options), scene.containers()
        node = engine.filled(policy, containers, scene.pods())
        comes = ContainerCreating(scene.newcomer)
        events: dict[str, tuple[engine.Make, bool]] = {"comes": (lambda node, number, comes=comes: comes, True)}  # type: ignore[misc]
        for verb, (make, has_bar) in (events | {verb: engine.EVENTS[name] for verb, name in USUAL.items()}).items():
            times = engine.times_ms(node, make, policy, repeats if has_bar else max(repeats // engine.WIDE, 2))
            yield from engine.figures(
                scene.policy, f"{title}: {verb}", times, engine.BARS if has_bar else engine.NO_BARS
            )
    node, event = Node(engine.large_machine()), ContainerCreating(engine.usual(1)[0])
    for name in BUILTIN:  # once in the life of a policy, so the bars are not for it
        first = (engine.time_ms(node, event, engine.build(name, {})) for _ in range(max(repeats // engine.WIDE, 2)))
        yield from engine.figures(name, "the first of all", first, engine.NO_BARS)
    for title, mib in (("roomy", ROOMY_MIB), ("full", FULL_MIB)):
        node = Node(engine.large_machine())
        for number in range(engine.CONTAINERS):
            node = _come(node, mib, number)
        for verb, act in (("comes", partial(_come, node, mib, key="new")), ("goes", partial(_go, node))):
            times = (engine.cpu_ms(partial(act, 7 * number)) for number in range(repeats))
            yield from engine.figures("memory", f"{verb}, {title}", times, (MEMORY_MS, STEP_P99_MS))


def _come(node: Node, mib: int, number: int, key: str = "") -> Node:
    """The node with one more container, whose CPUs are near one of its NUMA nodes."""
    name = key or f"c{number}"
    qos = list(QosClass)[number % len(QosClass)]
    container = Container(key=name, pod="s", name=name, qos=qos, memory_limit_bytes=mib << 20)
    known = node.replace(containers={**node.containers, name: container})
    grant, mems = Grant(frozenset({0}), frozenset()), frozenset({number % len(node.topology.nodes)})
    return known.replace(grants={**node.grants, **place_memory(known, {name: grant}, container, mems).grants})


def _go(node: Node, number: int) -> None:
    key = (f"c{number % engine.CONTAINERS}",)
    after = node.replace(containers=without(node.containers, key), grants=without(node.grants, key))
    return_memory(after, after.grants)
