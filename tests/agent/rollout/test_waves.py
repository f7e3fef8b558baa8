"""Rollouts over whole clusters, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from criproxy.agent.objects.node_policy import NodePolicy
from lab.lives.virtual import VirtualLoop
from tests.agent.rollout.cluster_model import Cluster
from tests.agent.rollout.daemon_model import FILE, PROBLEM, policy_object


def play(nodes: int, scene: Callable[[Cluster], Awaitable[None]]) -> None:
    """Play a scene on a cluster; at no moment more nodes than two try a policy."""

    async def whole() -> None:
        cluster = Cluster(nodes)
        await asyncio.sleep(5)
        try:
            await scene(cluster)
            assert all(each.alive for agents in cluster.agents.values() for each in agents)
        finally:
            await cluster.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(whole())


async def settled(cluster: Cluster, holds: Callable[[], bool], limit_s: float = 20_000) -> None:
    """Wait until it holds; meanwhile never more than two nodes try."""
    waited_s = 0.0
    while not holds():
        assert len(cluster.trying()) <= 2
        await asyncio.sleep(0.5)
        waited_s += 0.5
        assert waited_s < limit_s, {name: cluster.state(name) for name in cluster.daemons}


def test_a_good_policy_reaches_all_nodes_two_at_a_time() -> None:
    """Twenty nodes keep it, never more than two of them try at a moment, and all turns are given up."""

    async def scene(cluster: Cluster) -> None:
        cluster.put_policy(policy_object(policy="balloons", rollout_try="1m", rollout_atOnce="10%"))
        await settled(cluster, lambda: all(each.kept for each in cluster.daemons.values()))
        await asyncio.sleep(60)
        assert {each.now.source for each in cluster.daemons.values()} == {"NodePolicy/p"}
        assert {cluster.state(name).phase for name in cluster.daemons} == {"Applied"}  # type: ignore[union-attr]
        assert cluster.holders() == set()
        policy = NodePolicy.read(cluster.policy())
        assert policy.status.rollout is not None
        assert (policy.status.rollout.nodes, policy.status.rollout.slots) == (20, 2)
        assert not policy.status.stopped
        assert all(len(each.tried) == 1 for each in cluster.daemons.values())

    play(20, scene)


def test_a_bad_policy_touches_two_nodes() -> None:
    """With atOnce 2 and one failure allowed, two of twenty nodes try it; all are back, and the object says why."""

    async def scene(cluster: Cluster) -> None:
        bad = policy_object(
            policy="static", fails_on=list(cluster.daemons), after_s=20, rollout_try="1m", rollout_atOnce=2
        )
        cluster.put_policy(bad)
        await settled(cluster, lambda: NodePolicy.read(cluster.policy()).status.stopped)
        await asyncio.sleep(3600)
        policy = NodePolicy.read(cluster.policy())
        touched = {name for name, each in cluster.daemons.items() if each.tried}
        assert 1 <= len(touched) <= 2
        assert {each.now.source for each in cluster.daemons.values()} == {FILE}
        assert policy.status.failures[0].node in touched
        assert policy.status.failures[0].text == PROBLEM
        assert f"{policy.status.failures[0].node}: {PROBLEM}" in policy.status.message
        phases = {name: cluster.state(name).phase for name in cluster.daemons}  # type: ignore[union-attr]
        assert {name for name, phase in phases.items() if phase == "RolledBack"} <= touched
        assert set(phases.values()) == {"RolledBack", "Waiting"}
        assert cluster.holders() == set()

    play(20, scene)
