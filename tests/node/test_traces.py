"""Recordings of a real kubelet, played against the embedded runtime under every policy."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.workload import ContainerState
from criproxy.placement.invariants import violations
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from lab.emulator.runtime import RuntimeOptions
from tests.conftest import ROOT
from tests.node.traces import EmbeddedEnds, Player, Recorded, read, recordings
from tests.node.world import FAST, World, problems, situation

LIMIT_S = 300.0
REST_S = 60.0
MACHINE = machine(nodes=1, cores=2, threads=1)
"""As that of the recordings."""
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "none": {},
    "static": {"reservedCpus": "0"},
    "topology-aware": {},
    "balloons": {"balloonTypes": [{"name": "batch", "namespaces": ["night"]}]},
    "pools": {"reservedCpus": "0", "pools": [{"name": "rt", "exclusive": True, "cpuLists": [{"cpuset": "1"}]}]},
}
CONTAINERD_2_1 = RuntimeOptions(missing=frozenset({"UpdatePodSandboxResources"}))
"""The runtime of the recordings, which does not know this call."""
RECORDED = recordings(Path(os.environ.get("CRIPROXY_SHARED") or ROOT.parent / "shared"))


def policy_of(name: str) -> Policy:
    """The policy *name* with its options for two CPUs."""
    entry = BUILTIN[name]
    return entry.build(entry.options.model_validate(OPTIONS[name]))


@dataclass(frozen=True, slots=True)
class Look:
    """Looks whether all is well, whenever nothing is under way."""

    world: World

    async def around(self, call: Recorded) -> None:
        """Nothing is wrong, says ``status --check``, and nobody runs where another has exclusive CPUs."""
        await self.world.rested()
        try:
            async with asyncio.timeout(REST_S):
                await self.world.poll(lambda: not any(self._found().values()))
        except TimeoutError:
            pytest.fail(f"after line {call.line} ({call.method}): {self._found()}")
        assert violations(self.world.controller.node, situation(self.world.controller).reserved) == []
        assert list(self._intruders()) == [], f"after line {call.line} ({call.method})"

    def _found(self) -> dict[str, object]:
        return problems(situation(self.world.controller))

    def _intruders(self) -> Iterator[str]:
        """Containers whose cgroup has CPUs that another is to have for itself."""
        node = self.world.controller.node
        running = (one for one in node.containers.values() if one.state is ContainerState.RUNNING)
        for container in running:
            grant, cpuset = node.grants.get(container.key), self.world.runtime.cpuset(container.key)
            foreign = node.exclusive_cpus - (grant.exclusive if grant else NO_CPUS)
            if cpuset is not None and cpuset.cpus & foreign:
                yield f"{container.title} runs on CPUs {format_cpuset(cpuset.cpus & foreign)} of another"

    async def noticed(self, container_id: str) -> None:
        """Wait until the end of a container is known, if it is known itself."""
        await self.world.poll(lambda: not self._may_run(container_id))

    def _may_run(self, container_id: str) -> bool:
        container = self.world.controller.node.containers.get(container_id)
        return container is not None and container.state is not ContainerState.EXITED


def cases() -> list[object]:
    """Every recording under every policy; one skipped case says that there are none."""
    if not RECORDED:
        return [pytest.param("", "", marks=pytest.mark.skip(reason="no traces beside the repository (../shared)"))]
    return [pytest.param(name, policy, id=f"{name}-{policy}") for name in RECORDED for policy in OPTIONS]


@pytest.mark.parametrize(("name", "policy"), cases())
async def test_what_a_real_kubelet_says_is_answered_as_there(name: str, policy: str, tmp_path: Path) -> None:
    """Each call ends as recorded, all is well after each, and nothing is left at the end, nor was an error logged."""
    world = World(tmp_path, CONTAINERD_2_1, FAST, policy_of(policy), MACHINE)
    async with asyncio.timeout(LIMIT_S), world:
        look = Look(world)
        player = Player(world.client, EmbeddedEnds(world.runtime, look.noticed), at_rest=look.around)
        await player.play(read(RECORDED[name]))
        assert not world.controller.node.grants, "places are left although all sandboxes were stopped"
        await player.clean_up()
        await world.rested()
        node = world.controller.node
        left = (node.pods, node.containers, node.grants, node.applied, getattr(node, "kept", None))
        assert not any(left), f"left over: {left}"
        await world.stop_criproxy()
        with closing(Store(tmp_path / "state")) as store:
            stored = store.load(MACHINE)
        await world.start_criproxy()
    assert not any((stored.pods, stored.containers, stored.grants, stored.applied)), f"left in the state: {stored}"
    assert world.log.error_lines == []
