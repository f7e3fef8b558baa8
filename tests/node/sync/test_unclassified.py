"""Containers that a criproxy without classes has placed: a start looks up their classes, and moves nobody."""

import json
from collections.abc import Mapping
from pathlib import Path

from criproxy.cri.stamp import ANNOTATION
from criproxy.model.cpuset import format_cpuset
from criproxy.placement.events import Unclassified
from lab.kubelet.kubelet import PodSpec
from tests.node.reconcile.test_controls_client import policy
from tests.node.world import NO_LOOKS, World, owner, sharer

MIB = 1 << 20
PEERS_KEY = "class.memory-qos.nri.io"
CLASSES = policy("""
annotations: {allow: {"*": [memory-class]}}
classes:
  usual: {for: {namespaces: ["*"]}, memory: {high: 1Mi, low: 0}}
  other: {memory: {high: 2Mi}}
""")


def as_before_classes(world: World, key: str) -> None:
    """Let a container have the stamp, and the store the annotations of its pod, of a criproxy without classes."""
    annotations = world.runtime.core.records.containers[key].config.annotations
    stamp = json.loads(annotations[ANNOTATION])
    del stamp["kubelet_files"]
    annotations[ANNOTATION] = json.dumps(stamp)


def values(world: World, key: str) -> Mapping[str, str]:
    """What its class sets, as the daemon has it."""
    return dict(world.controller.node.grants[key].controls.values)


async def test_a_start_looks_up_classes_that_nobody_has_looked_up(tmp_path: Path) -> None:
    """Nobody moves, the runtime gets the values, and a container that this version has placed is not looked up."""
    async with World(tmp_path, settings=NO_LOOKS) as world:
        old, owned, new = [await world.run(pod) for pod in (sharer("old"), owner("owned"), sharer("new"))]
        for key in (old, owned):
            as_before_classes(world, key)
        before = {key: grant.cpus for key, grant in world.controller.node.grants.items()}
        kept = world.runtime.core.records.containers
        group = tmp_path / f"sys/fs/cgroup/memory/{kept[old].cgroup}"
        group.mkdir(parents=True)
        (group / "memory.high").write_text("max\n")
        world.use(CLASSES)
        await world.restart()
        await world.until(lambda: bool(values(world, old)) and bool(values(world, owned)))
        await world.poll(lambda: kept[old].resources.unified.get("memory.high") == f"{MIB}")

        node = world.controller.node
        assert values(world, old) == values(world, owned) == {"memory.high": f"{MIB}", "memory.low": "0"}
        assert values(world, new) == {}
        assert {key: grant.cpus for key, grant in node.grants.items()} == before
        assert (world.cpus(owned), world.cpus(old)) == (format_cpuset(before[owned]), format_cpuset(before[old]))

        await world.restart()  # once is enough
        await world.rested()
        assert values(world, old) == {"memory.high": f"{MIB}", "memory.low": "0"}


async def test_what_only_the_runtime_remembers_counts(tmp_path: Path) -> None:
    """An annotation of peers, which the older version has not stored, and files that the kubelet sets itself."""
    named = PodSpec("named", sharer("named").containers, annotations={PEERS_KEY: "other"})
    async with World(tmp_path, settings=NO_LOOKS) as world:
        told, plain = await world.run(named), await world.run(sharer("plain"))
        for key in (told, plain):
            as_before_classes(world, key)
        world.runtime.core.records.containers[plain].resources.unified["memory.high"] = "4096"
        pod = world.controller.node.containers[told].pod
        await world.controller.context.state.apply(Unclassified({pod: {}}))  # as such a version has stored it
        await world.rested()
        world.use(CLASSES)
        await world.restart()
        await world.until(lambda: bool(values(world, told)) and bool(values(world, plain)))

        assert values(world, told) == {"memory.high": f"{2 * MIB}"}
        assert values(world, plain) == {"memory.low": "0"}
        assert world.controller.node.containers[plain].kubelet_files == ("memory.high",)
