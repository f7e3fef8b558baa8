"""A policy that is not ours, and a machine that is not what it was, break nothing."""

import asyncio
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.engine.guard import Guarded
from criproxy.errors import StatusCode
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Grant, Layout
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import Container
from criproxy.policy.options import Options
from criproxy.policy.static import StaticPolicy
from criproxy.simulate.machines import machine
from tests.control import world as worlds
from tests.control.world import STATIC, World, owner, sharer

LIMIT_S = 20.0


class Greedy(StaticPolicy):
    """Gives pods named ``greedy`` CPUs that others own."""

    def place(self, node: Node, container: Container) -> Layout:
        """The static layout, or a bad one."""
        layout = super().place(node, container)
        if container.pod_name != "greedy":
            return layout
        everything = node.topology.cpus
        return Layout({**layout.grants, container.key: Grant(everything, node.topology.mems, everything)})


async def test_a_layout_that_breaks_a_rule_refuses_the_container(tmp_path: Path) -> None:
    """The pod shows which policy broke what; nobody moves, it is counted, and others are placed as ever."""
    policy = Guarded(Greedy(STATIC.options), "greedy", Options.model_validate({"reservedCpus": 0}))
    async with asyncio.timeout(LIMIT_S), World(tmp_path, policy=policy) as world:
        owned = await world.run(owner("owner", 1))
        before = world.controller.node.grants

        with pytest.raises(RuntimeCallError) as caught:
            await world.run(owner("greedy", 1))

        assert caught.value.code is StatusCode.INTERNAL
        assert "default/greedy/main cannot be placed: the policy 'greedy' is wrong: CPU 1" in caught.value.details
        assert world.controller.node.grants == before
        assert world.counters.policy_faults == 1
        assert (world.cpus(owned), world.cpus(await world.run(sharer("shared")))) == ("1", "0,2-3")


async def test_cpus_that_went_over_a_restart_leave_the_grants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner gets a substitute for a CPU that is no more, and those that share make room for it."""

    def smaller(nodes: int, cores: int, threads: int) -> Topology:
        return machine(nodes, cores, threads, allowed=parse_cpuset("0,2-3"))

    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world:
        shared = await world.run(sharer("shared"))
        owned = await world.run(owner("owner", 1))
        assert (world.cpus(owned), world.cpus(shared)) == ("1", "0,2-3")
        await world.stop_criproxy()
        monkeypatch.setattr(worlds, "machine", smaller)

        await world.start_criproxy()

        await world.until(lambda: (world.cpus(owned), world.cpus(shared)) == ("2", "0,3"))
