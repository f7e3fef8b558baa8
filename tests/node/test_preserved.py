"""A container that is left alone is kept off exclusive CPUs in its cgroup, whatever happens to criproxy meanwhile."""

from pathlib import Path
from shutil import rmtree

from criproxy.api.views.situation import Situation
from criproxy.api.views.status import rows
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.world import World, owner, problems

POLICY = TopologyAwarePolicy(
    TopologyAwareOptions.model_validate(
        {"reservedCpus": "0", "availableResources": {"cpu": "cpuset:0-2"}, "annotations": {"allow": {"*": ["*"]}}}
    )
)
KEPT = PodSpec(
    "kept", (ContainerSpec("main", IMAGE, cpu_request_milli=100),), annotations={"cpu.preserve.criproxy.io/pod": "true"}
)


def wrong(world: World) -> object:
    """What `status --check` says."""
    situation = Situation(node=world.controller.node, policy="topology-aware", reserved=frozenset({0}))
    return problems(situation)["problems"]


async def test_it_follows_over_restarts_and_a_lost_state(tmp_path: Path) -> None:
    """It leaves a CPU before its new owner starts, stays off it, and gets it back with the owner's end."""
    async with World(tmp_path, policy=POLICY) as world:
        kept = await world.run(KEPT)
        assert world.cpus(kept) == "0-3"
        sandbox, ids = await world.kubelet.run_pod(owner("trader"))
        assert world.cpus(ids["main"]) == "1"
        assert world.cpus(kept) == "0,2-3"
        for lost in (False, True):
            await world.rested()
            await world.stop_criproxy()
            if lost:
                rmtree(tmp_path / "state")
            await world.start_criproxy()
            await world.poll(lambda: kept in world.controller.node.grants)
            assert world.controller.node.grants[kept].is_preserved
            assert world.cpus(kept) == "0,2-3"
            assert wrong(world) == []
        await world.kubelet.remove_pod(sandbox)
        await world.poll(lambda: world.cpus(kept) == "0-3")
        (row,) = [one for one in rows(Situation(node=world.controller.node)) if one["id"] == kept]
        assert (row["pool"], row["cpus"], row["placed"]) == ("(preserved)", "0-3", True)
