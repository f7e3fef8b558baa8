"""The API server gone, deaf to the agent, and with nothing left in it; agents killed: the node goes on as before."""

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from criproxy.model.cpuset import parse_cpuset
from lab.cluster import chart, manifests
from lab.cluster.checks.agent import API, TOPOLOGIES, placement_of, problems_of, until_phase
from lab.cluster.checks.policies import BALLOONS, configuration_of, until_applied
from lab.cluster.process import ClusterError

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

_WITHIN_S = 60.0
"""What should be in the API is there within a minute after it is back."""
_OUTAGE_S = 20.0


async def _placed(cluster: "Cluster", node: str) -> dict[str, str]:
    """The CPUs of each container of a small node, by the daemon's words."""
    answer = await cluster.serve_of(node).ask("status")
    return {f"{each['pod']}/{each['container']}": str(each["cpus"]) for each in answer["containers"]}


async def _exclusive(cluster: "Cluster", node: str) -> int:
    """How many exclusive CPUs a NodePlacement says."""
    return int((await placement_of(cluster, node)).get("cpus", {}).get("exclusive", -1))


async def server_gone(cluster: "Cluster") -> str:
    """Without an API server pods are placed as before, the node says so, and a minute later all is in the API."""
    node = cluster.small[0]
    before = await _exclusive(cluster, node.name)
    await cluster.control_plane.stop_server()
    try:
        async with node.serve.kubelet() as kubelet:
            sandbox, _ = await kubelet.run_pod(node.pod("outage", 4))
        placed = await _placed(cluster, node.name)
        assert len(parse_cpuset(placed[f"{node.name}-outage/main"])) == 4, placed

        async def says() -> list[str]:
            return await problems_of(cluster, node.name)

        said = await cluster.until(says, "status named the agent's problem", _WITHIN_S)
        await asyncio.sleep(_OUTAGE_S)
    finally:
        await cluster.control_plane.start_server()

    async def written() -> bool:
        return await _exclusive(cluster, node.name) == before + 4

    await cluster.until(written, f"the NodePlacement of {node.name} had {before + 4} exclusive CPUs", _WITHIN_S)
    async with node.serve.kubelet() as kubelet:
        await kubelet.remove_pod(sandbox)
    return f"{before} exclusive CPUs, then {before + 4}; {said[0][:200]}"


async def forbidden(cluster: "Cluster") -> str:
    """An agent without rights says so on the node, and goes on when it has them again."""
    node = cluster.small[0]
    name = "kube-system-criproxy-node"
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}"
    binding = await cluster.control_plane.get(path)
    assert binding, f"the chart has made no ClusterRoleBinding {name}"
    await cluster.control_plane.asked("DELETE", path)
    async with node.serve.kubelet() as kubelet:
        sandbox, _ = await kubelet.run_pod(node.pod("forbidden", 2))

    async def says() -> str:
        return next((each for each in await problems_of(cluster, node.name) if "403" in each), "")

    said = await cluster.until(says, "status said that the agent is refused", 2 * _WITHIN_S)
    again = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
    await cluster.control_plane.apply({**again, "metadata": {"name": name}})

    async def quiet() -> bool:
        return not await problems_of(cluster, node.name) and await _exclusive(cluster, node.name) == _PODS + 2

    await cluster.until(quiet, "the agent had written and no problem any more", 2 * _WITHIN_S)
    async with node.serve.kubelet() as kubelet:
        await kubelet.remove_pod(sandbox)
    return said[:300]


_PODS = 2
"""Exclusive CPUs of the pod that each small node has from the start."""


async def objects_deleted(cluster: "Cluster") -> str:
    """NodePlacements and NodeResourceTopologies that somebody deletes come back."""
    before = {name: await _placed(cluster, name) for name in cluster.names[1:]}
    await cluster.control_plane.kubectl("delete", "nodeplacements,noderesourcetopologies", "--all")

    paths = [f"{kind}/{name}" for kind in (f"{API}/nodeplacements", TOPOLOGIES) for name in cluster.names]
    missing = list(paths)

    async def back() -> bool:
        missing[:] = [path for path in paths if not await cluster.control_plane.get(path)]
        return not missing

    try:
        await cluster.until(back, "all were back", _WITHIN_S)
    except ClusterError as error:
        raise ClusterError(f"{error}: {missing}") from None
    assert before == {name: await _placed(cluster, name) for name in cluster.names[1:]}
    return f"{2 * len(cluster.names)} objects"


async def agent_killed_in_try(cluster: "Cluster") -> str:
    """An agent that is killed in the middle of a try ends it after its restart."""
    node, agent = cluster.small[0], cluster.agents[0]
    policy = manifests.node_policy("lab-kill", BALLOONS, labels={"kubernetes.io/hostname": node.name}, try_for="15s")
    await cluster.control_plane.apply(policy)

    async def trying() -> bool:
        return (await configuration_of(cluster, node.name))["try"] is not None

    await cluster.until(trying, f"{node.name} tried it", _WITHIN_S)
    await agent.program.restart(signal.SIGKILL)

    await until_applied(cluster, "lab-kill", (node.name,))
    await cluster.control_plane.kubectl("delete", "nodepolicy", "lab-kill")

    async def back() -> bool:
        return bool((await configuration_of(cluster, node.name))["file"] == str(node.serve.policy))

    await cluster.until(back, f"{node.name} had its file back", _WITHIN_S)
    return "killed in its try, kept after the restart"


async def server_wiped(cluster: "Cluster") -> str:
    """When the API server has lost everything, no container moves, and the objects come back with the chart."""
    small = cluster.names[1:]
    before: dict[str, Any] = {name: (await _placed(cluster, name), await _file(cluster, name)) for name in small}
    await cluster.control_plane.wipe()
    await asyncio.sleep(_OUTAGE_S)
    now = {name: (await _placed(cluster, name), await _file(cluster, name)) for name in small}
    assert now == before, f"containers moved or policies changed: {before} → {now}"
    for node in cluster.small:
        await node.register()
    await cluster.install()
    for agent in cluster.agents:
        await agent.renew()  # as a kubelet or an operator does: the accounts are other ones

    for name in small:
        await until_phase(cluster, name, "Applied", 2 * _WITHIN_S)
    assert before == {name: (await _placed(cluster, name), await _file(cluster, name)) for name in small}
    return f"{len(small)} nodes, release {chart.ACCOUNT} installed anew"


async def _file(cluster: "Cluster", node: str) -> str:
    return str((await configuration_of(cluster, node))["file"])


CHECKS = (server_gone, forbidden, objects_deleted, agent_killed_in_try, server_wiped)
"""The last one leaves no pods."""
