"""A policy that is not ours, and a machine that is not what it was, break nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import StatusCode
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.node.settings import OnError
from criproxy.placement.checked_policy import CheckedPolicy
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import machine
from tests.node import world as worlds
from tests.node.calls.test_update import size
from tests.node.world import FAST, STATIC, World, owner, refusal, said, sharer


class Greedy(StaticPolicy):
    """Gives pods named ``greedy`` CPUs that others own, and those of another name when they grow."""

    def __init__(self, options: StaticOptions, growing: str = "") -> None:
        super().__init__(options)
        self.growing = growing

    def place(self, node: Node, container: Container) -> Change:
        """The static layout, or a bad one."""
        layout = super().place(node, container)
        grows = container.pod_name == self.growing and container.cpu_milli > 1000
        if container.pod_name != "greedy" and not grows:
            return layout
        everything = node.topology.cpus
        return Change({**layout.grants, container.key: Grant(everything, node.topology.mems, everything)})


GREEDY = CheckedPolicy(Greedy(STATIC.options), "greedy", Options.model_validate({"reservedCpus": 0}))
WRONG = "default/greedy/main cannot be placed: the policy 'greedy' is faulty: CPU 1"


async def test_a_layout_that_breaks_a_rule_is_a_failure_like_any_other(tmp_path: Path) -> None:
    """Its container shares, as `onError` says; nobody moves, it is counted and listed, and others are placed."""
    async with World(tmp_path, policy=GREEDY) as world:
        owned = await world.run(owner("owner", 1))
        greedy = await world.run(owner("greedy", 1))

        assert (world.cpus(owned), world.cpus(greedy)) == ("1", "0,2-3")
        assert world.owned() == {1}
        assert world.counters.policy_faults > 0
        assert world.counters.fallbacks == {"shared": 1}
        assert said(world, WRONG)
        assert world.cpus(await world.run(sharer("shared"))) == "0,2-3"


async def test_a_layout_that_breaks_a_rule_is_refused_where_failures_are(tmp_path: Path) -> None:
    """The kubelet, which tries again, hears which policy broke what; nothing has changed."""
    refusing = replace(FAST, on_error=OnError.REFUSE)
    async with World(tmp_path, settings=refusing, policy=GREEDY) as world:
        await world.run(owner("owner", 1))
        before = world.controller.node.grants

        assert (await refusal(world.run(owner("greedy", 1)), WRONG)).code is StatusCode.UNAVAILABLE
        assert world.controller.node.grants == before


async def test_a_resize_with_a_layout_that_breaks_a_rule_is_refused(tmp_path: Path) -> None:
    """The container keeps its size and its place, and the runtime hears nothing."""
    policy = CheckedPolicy(Greedy(STATIC.options, "grows"), "greedy", Options.model_validate({"reservedCpus": 0}))
    async with World(tmp_path, policy=policy) as world:
        await world.run(owner("owner", 1))
        grows = await world.run(owner("grows", 1))

        caught = await refusal(world.kubelet.update(grows, size(2000)), "default/grows/main cannot be placed")

        assert caught.code is StatusCode.UNAVAILABLE
        await world.poll(lambda: not world.controller.context.locks.busy(grows))
        assert world.controller.node.containers[grows].cpu_milli == 1000
        assert world.cpus(grows) == "2"


async def test_cpus_that_went_over_a_restart_leave_the_grants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner gets a substitute for a CPU that is no more, and those that share make room for it."""

    def smaller(nodes: int, cores: int, threads: int) -> Topology:
        return machine(nodes, cores, threads, allowed=parse_cpuset("0,2-3"))

    async with World(tmp_path) as world:
        shared = await world.run(sharer("shared"))
        owned = await world.run(owner("owner", 1))
        assert (world.cpus(owned), world.cpus(shared)) == ("1", "0,2-3")
        await world.stop_criproxy()
        monkeypatch.setattr(worlds, "machine", smaller)

        await world.start_criproxy()

        await world.until(lambda: (world.cpus(owned), world.cpus(shared)) == ("2", "0,3"))
