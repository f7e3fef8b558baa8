"""NodePolicies over three nodes: waves, a refusal, one that fails, and back to the file."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import yaml

from lab.cluster import cards, manifests
from lab.cluster.checks.agent import API, placement_of, until_phase

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

_WITHIN_S = 240.0
_CARDS = yaml.safe_load(cards.POLICY)
"""The section of cards, which no try may change: the device plugin reads the node's own file."""
GOOD = {"policy": "topology-aware", "reservedCpus": "0", **_CARDS}
REFUSED = {"policy": "static", "reservedCpus": "4000", **_CARDS}
BALLOONS = {"policy": "balloons", "reservedCpus": "0-1", **_CARDS}
BAD = {"policy": "static", "reservedCpus": "0-30", "apply": "all", **_CARDS}
"""It has no place for a container that runs on each of the small nodes."""


async def configuration_of(cluster: "Cluster", node: str) -> dict[str, Any]:
    """What the node's daemon itself says of its configuration: file, hash, try."""
    answer = await cluster.serve_of(node).ask("agent", after=0, wait_s=0)
    return dict(answer["configuration"])


async def _watch(cluster: "Cluster", most: list[int]) -> None:
    """Count the nodes that try something, again and again: the most at a time, and how many looks."""
    while True:
        found = await asyncio.gather(*(configuration_of(cluster, name) for name in cluster.names))
        most[0] = max(most[0], sum(each["try"] is not None for each in found))
        most[1] += 1
        await asyncio.sleep(0.3)


async def until_applied(cluster: "Cluster", policy: str, nodes: tuple[str, ...]) -> None:
    """Return when daemons have kept a NodePolicy and the NodePlacements say so."""
    for name in nodes:

        async def kept(name: str = name) -> bool:
            found, status = await configuration_of(cluster, name), await placement_of(cluster, name)
            shown = (status.get("phase"), status.get("policy", {}).get("hash")) == ("Applied", found["hash"])
            return shown and found["file"] == f"NodePolicy/{policy}" and found["try"] is None

        await cluster.until(kept, f"{name} had kept NodePolicy/{policy}", _WITHIN_S)


async def waves(cluster: "Cluster") -> str:
    """A NodePolicy comes into force on three nodes, one after the other."""
    most, begun = [0, 0], time.monotonic()
    await cluster.control_plane.apply(manifests.node_policy("lab-good", GOOD, labels=manifests.GROUP))
    watching = asyncio.create_task(_watch(cluster, most))
    try:
        await until_applied(cluster, "lab-good", cluster.names)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert most[0] == 1, f"{most[0]} nodes tried it at the same time"
    spent = time.monotonic() - begun
    status = (await cluster.control_plane.get(f"{API}/nodepolicies/lab-good"))["status"]
    assert status["rollout"]["nodes"] == len(cluster.names), status
    table = await cluster.control_plane.kubectl("get", "nodepolicies", "lab-good")
    return f"{spent:.0f} s, at most {most[0]} at a time ({most[1]} looks); {table.splitlines()[-1]}"


async def refused(cluster: "Cluster") -> str:
    """One that the nodes refuse never comes into force, and each node says why."""
    await cluster.control_plane.apply(
        manifests.node_policy("lab-refused", REFUSED, labels=manifests.GROUP, priority=10)
    )
    for name in cluster.names:
        await until_phase(cluster, name, "Refused", _WITHIN_S)
        found = await configuration_of(cluster, name)
        assert found["file"] == "NodePolicy/lab-good", found
    said = (await placement_of(cluster, cluster.names[0]))["message"]
    assert "CPU 4000" in said, said
    await cluster.control_plane.kubectl("delete", "nodepolicy", "lab-refused")
    await until_applied(cluster, "lab-good", cluster.names)
    return str(said)


async def rolled_back(cluster: "Cluster") -> str:
    """One that fails on a node is rolled back there, and no other node begins."""
    small = tuple(cluster.names[1:])
    before = {name: (await configuration_of(cluster, name))["hash"] for name in small}
    policy = manifests.node_policy("lab-bad", BAD, labels=manifests.SMALL, priority=20, try_for="60s")
    await cluster.control_plane.apply(policy)

    async def stopped() -> dict[str, Any]:
        found = await cluster.control_plane.get(f"{API}/nodepolicies/lab-bad")
        status = dict(found.get("status", {}))
        return status if status.get("stopped") else {}

    status = await cluster.until(stopped, "the rollout had stopped", _WITHIN_S)
    (failure,) = status["failures"]
    phases = {}
    for name in small:
        phases[name] = "RolledBack" if name == failure["node"] else "Waiting"
        await until_phase(cluster, name, phases[name])
        found = await configuration_of(cluster, name)
        assert (found["hash"], found["try"]) == (before[name], None), f"{name} has {found}"
    await cluster.control_plane.kubectl("delete", "nodepolicy", "lab-bad")
    await until_applied(cluster, "lab-good", cluster.names)
    return f"{phases}; {failure['text'][:300]}; {status.get('message', '')[:200]}"


async def back_to_file(cluster: "Cluster") -> str:
    """When the NodePolicy is deleted, each node goes back to its own file."""
    await cluster.control_plane.kubectl("delete", "nodepolicy", "lab-good")
    for name in cluster.names:

        async def back(name: str = name) -> bool:
            found, status = await configuration_of(cluster, name), await placement_of(cluster, name)
            own = str(cluster.serve_of(name).policy)
            return bool(found["file"] == own) and status.get("policy", {}).get("source") == own

        await cluster.until(back, f"{name} had its file back", _WITHIN_S)
    return f"{len(cluster.names)} nodes"


CHECKS = (waves, refused, rolled_back, back_to_file)
