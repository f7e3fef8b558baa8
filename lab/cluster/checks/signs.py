"""Events on pods and Nodes, the condition during a bypass, and NVIDIA's label that chooses a configuration."""

import json
from typing import TYPE_CHECKING, Any

import yaml

from lab.cluster import chart, manifests
from lab.cluster.checks.agent import problems_of, until_condition, until_phase
from lab.cluster.worker import NAME

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

LABEL = "nvidia.com/device-plugin.config"
GPU = "nvidia.com/gpu"
_WITHIN_S = 90.0


async def event_of(cluster: "Cluster", kind: str, name: str, reason: str) -> str:
    """The message of an Event about an object; empty if there is none yet."""
    selector = f"involvedObject.kind={kind},involvedObject.name={name},reason={reason}"
    found = await cluster.control_plane.get(f"/api/v1/namespaces/default/events?fieldSelector={selector}")
    return str(found["items"][-1]["message"]) if found["items"] else ""


async def until_event(cluster: "Cluster", kind: str, name: str, reason: str) -> str:
    """The message of an Event, as soon as there is one."""

    async def there() -> str:
        return await event_of(cluster, kind, name, reason)

    return await cluster.until(there, f"there was an Event {reason} about {name}", _WITHIN_S)


async def refused_pod(cluster: "Cluster") -> str:
    """A pod that criproxy refuses has an Event that says why, and what would help; it starts when there is room."""
    await cluster.run_pods(manifests.guaranteed("first", "1", node=NAME))
    await cluster.control_plane.apply(manifests.guaranteed("second", "1", node=NAME))
    said = await until_event(cluster, "Pod", "second", "PlacementRefused")
    await cluster.delete_pods("first")
    await cluster.until_ready("second")
    await cluster.delete_pods("second")
    return said


async def bypass(cluster: "Cluster") -> str:
    """A bypass is an Event on the Node, and seen in its condition and its NodePlacement."""
    serve = cluster.serve_of(NAME)
    status, said = await serve.command("bypass", "on")
    assert status == 0, said
    try:
        event = await until_event(cluster, "Node", NAME, "BypassOn")
        await until_condition(cluster, NAME, "False", "Bypassed")
        await until_phase(cluster, NAME, "Bypassed")
    finally:
        status, said = await serve.command("bypass", "off")
    assert status == 0, said
    await until_event(cluster, "Node", NAME, "BypassOff")
    await until_condition(cluster, NAME, "True", "CriproxyReady")
    await until_phase(cluster, NAME, "Applied")
    return event


# ---------------------------------------------------------------- NVIDIA's label


async def _configurations(cluster: "Cluster", **configurations: Any) -> None:  # noqa: ANN401 (JSON)
    """Replace the ConfigMap's named configurations."""
    texts = {name: yaml.safe_dump(each) for name, each in configurations.items()}
    path = f"/api/v1/namespaces/{chart.NAMESPACE}/configmaps/{chart.CONFIGURATIONS}"
    found = await cluster.control_plane.get(path)
    assert found, f"the chart has made no ConfigMap {chart.CONFIGURATIONS}"
    await cluster.control_plane.patch(path, {"data": {**dict.fromkeys(found["data"]), **texts}})


async def _label(cluster: "Cluster", value: str | None) -> None:
    await cluster.control_plane.patch(f"/api/v1/nodes/{NAME}", {"metadata": {"labels": {LABEL: value}}})


async def _gpus(cluster: "Cluster", count: int) -> None:
    async def offered() -> bool:
        node = await cluster.control_plane.get(f"/api/v1/nodes/{NAME}")
        return bool(node["status"]["allocatable"].get(GPU) == str(count))

    await cluster.until(offered, f"{NAME} offered {count} of {GPU}", _WITHIN_S)


def _sharing(replicas: int) -> dict[str, Any]:
    return {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": replicas}]}}}


async def configuration_label(cluster: "Cluster") -> str:
    """NVIDIA's label chooses the configuration of GPUs at run time, also when the ConfigMap changes."""
    default = {"version": "v1"}
    await _configurations(cluster, default=default, shared=_sharing(4))
    await _gpus(cluster, 1)
    await _label(cluster, "shared")
    await _gpus(cluster, 4)
    await _configurations(cluster, default=default, shared=_sharing(2))
    await _gpus(cluster, 2)
    await _label(cluster, "unknown")

    async def told() -> str:
        return next((text for text in await problems_of(cluster, NAME) if "unknown" in text), "")

    said = await cluster.until(told, "the agent said that it does not know the configuration", _WITHIN_S)
    await _gpus(cluster, 2)
    await _label(cluster, None)
    await _gpus(cluster, 1)
    return f"1 GPU, then 4 and 2 shared, and 1 again; {json.dumps(said)}"


CHECKS = (refused_pod, bypass, configuration_label)
