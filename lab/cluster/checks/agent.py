"""What the agents say of their nodes: NodePlacements, the Node's signs, NodeResourceTopologies."""

from typing import TYPE_CHECKING, Any

from lab.cluster import cards
from lab.cluster.worker import NAME, TAINT

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

API = "/apis/criproxy.io/v1alpha1"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
_WITHIN_S = 60.0
"""What should be in the API is there within a minute."""


async def placement_of(cluster: "Cluster", node: str) -> dict[str, Any]:
    """The status of a NodePlacement; empty if there is none."""
    found = await cluster.control_plane.get(f"{API}/nodeplacements/{node}")
    return dict(found.get("status", {})) if found else {}


async def until_phase(cluster: "Cluster", node: str, phase: str, timeout_s: float = _WITHIN_S) -> None:
    """Return when the NodePlacement of a node says so."""

    async def says() -> bool:
        return (await placement_of(cluster, node)).get("phase") == phase

    await cluster.until(says, f"the NodePlacement of {node} said {phase}", timeout_s)


async def until_condition(cluster: "Cluster", node: str, status: str, reason: str) -> None:
    """Return when the condition of a Node is so."""

    async def there() -> bool:
        found = await cluster.control_plane.get(f"/api/v1/nodes/{node}")
        ours = [each for each in found["status"]["conditions"] if each["type"] == "CriproxyReady"]
        return bool(ours) and (ours[0]["status"], ours[0]["reason"]) == (status, reason)

    await cluster.until(there, f"CriproxyReady of {node} was {status} ({reason})", _WITHIN_S)


async def problems_of(cluster: "Cluster", node: str) -> list[str]:
    """What `criproxy status` says of the agent."""
    answer = await cluster.serve_of(node).ask("status")
    return list((answer.get("agent") or {}).get("problems", []))


async def startup_taint(cluster: "Cluster") -> str:
    """The startup taint goes once the kubelet goes through criproxy."""

    async def gone() -> bool:
        node = await cluster.control_plane.get(f"/api/v1/nodes/{NAME}")
        return all(each["key"] != TAINT for each in node["spec"].get("taints", []))

    try:
        await cluster.until(gone, f"the taint {TAINT} was gone", _WITHIN_S)
    finally:
        await cluster.control_plane.try_kubectl("taint", "node", NAME, f"{TAINT}-")  # for the checks that follow
    return f"{TAINT} was on {NAME} from its registration on"


async def condition(cluster: "Cluster") -> str:
    """Each Node has the condition CriproxyReady."""
    for name in cluster.names:
        await until_condition(cluster, name, "True", "CriproxyReady")
    return f"True on {len(cluster.names)} nodes"


async def placements(cluster: "Cluster") -> str:
    """Kubectl get nodeplacements says that all is well on each node."""
    for name in cluster.names:

        async def well(name: str = name) -> bool:
            status = await placement_of(cluster, name)
            return (status.get("phase"), status.get("ready")) == ("Applied", "True")

        await cluster.until(well, f"the NodePlacement of {name} was Applied and Ready", _WITHIN_S)
        whole = await cluster.control_plane.get(f"{API}/nodeplacements/{name}")
        node = await cluster.control_plane.get(f"/api/v1/nodes/{name}")
        (owner,) = whole["metadata"]["ownerReferences"]
        assert owner["uid"] == node["metadata"]["uid"], f"the owner of the NodePlacement of {name} is {owner}"
    table = await cluster.control_plane.kubectl("get", "nodeplacements")
    return "\n       ".join(("", *table.splitlines()))


async def topologies(cluster: "Cluster") -> str:
    """Each node has a NodeResourceTopology as the scheduler's plugin reads it."""
    said = []
    for name in cluster.names:

        async def there(name: str = name) -> dict[str, Any]:
            return await cluster.control_plane.get(f"{TOPOLOGIES}/{name}") or {}

        found = await cluster.until(there, f"the NodeResourceTopology of {name} was there", _WITHIN_S)
        zones = [each for each in found["zones"] if each["type"] == "Node"]
        assert zones, f"{name} has no zone of the type Node: {found['zones']}"
        assert [each["name"] for each in zones] == [f"node-{number}" for number in range(len(zones))], zones
        for zone in zones:
            amounts = {each["name"]: each for each in zone["resources"]}
            assert {"cpu", "memory"} <= amounts.keys(), amounts
        attributes = {each["name"]: each["value"] for each in found["attributes"]}
        assert attributes["nodeTopologyPodsFingerprint"].startswith("pfp0v001"), attributes
        assert found["metadata"]["ownerReferences"][0]["kind"] == "Node", found["metadata"]
        cpus = [next(each["available"] for each in zone["resources"] if each["name"] == "cpu") for zone in zones]
        said.append(f"{name}: CPUs available {', '.join(map(str, cpus))}")
    return "; ".join(said)


async def labels(cluster: "Cluster") -> str:
    """The Node has the labels of its GPUs, and the inventory of vGPUs."""

    async def there() -> dict[str, Any]:
        metadata = (await cluster.control_plane.get(f"/api/v1/nodes/{NAME}"))["metadata"]
        labelled = "nvidia.com/gpu.product" in metadata["labels"]
        return metadata if labelled and "devices.criproxy.io/vgpus" in metadata["annotations"] else {}

    metadata = await cluster.until(there, "the Node had labels and inventory", _WITHIN_S)
    inventory = metadata["annotations"]["devices.criproxy.io/vgpus"]
    assert cards.PROFILE in inventory, inventory
    ours = {key: value for key, value in metadata["labels"].items() if key.startswith("nvidia.com/")}
    return f"nvidia.com/gpu.product={ours['nvidia.com/gpu.product']} and {len(ours) - 1} more; {inventory[:200]}"


CHECKS = (startup_taint, condition, placements, topologies, labels)
