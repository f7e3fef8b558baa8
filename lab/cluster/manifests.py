"""The objects that the checks put into the cluster (pure)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lab.containerd.containerd import IMAGE

Object = dict[str, Any]
GROUP = {"criproxy.example.com/group": "lab"}
"""The label of all nodes."""
SMALL = {"criproxy.example.com/kubelet": "small"}
"""The label of those without Kubernetes' kubelet."""
TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
NOTHING: Mapping[str, str] = MappingProxyType({})


def pod(
    name: str,
    requests: Mapping[str, str] = NOTHING,
    limits: Mapping[str, str] = NOTHING,
    *,
    node: str = "",
    labels: Mapping[str, str] = NOTHING,
    annotations: Mapping[str, str] = NOTHING,
    command: Sequence[str] = (),
) -> Object:
    """A pod with one container ``main`` that sleeps or runs *command*; bound to *node* if given, past the scheduler."""
    resources = {"requests": dict(requests), "limits": dict(limits)}
    container: Object = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "resources": resources}
    if command:
        container["command"] = list(command)
    spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Always"}
    spec["automountServiceAccountToken"] = False
    spec["enableServiceLinks"] = False
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "labels": dict(labels), "annotations": dict(annotations)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def guaranteed(name: str, cpu: str, memory: str = "64Mi", **more: Any) -> Object:  # noqa: ANN401 (of `pod`)
    """A pod whose limits are its requests."""
    return pod(name, {"cpu": cpu, "memory": memory}, {"cpu": cpu, "memory": memory}, **more)


def node(name: str, labels: Mapping[str, str] = NOTHING) -> Object:
    """A Node whose kubelet is not Kubernetes'."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
    }


def is_ready(found: Object | None) -> bool:
    """Whether a Node or a pod has the condition Ready."""
    conditions = found["status"].get("conditions", []) if found else []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def ready(cpus: int, memory_bytes: int) -> Object:
    """The status of a Node that can take pods."""
    amounts = {"cpu": str(cpus), "memory": str(memory_bytes), "pods": "110"}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "by the rig"}
    return {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}}


def node_policy(
    name: str,
    policy: Mapping[str, Any],
    *,
    labels: Mapping[str, str],
    priority: int = 0,
    try_for: str = "5s",
    at_once: int | str = 1,
) -> Object:
    """A NodePolicy for the nodes with *labels*."""
    rollout = {"try": try_for, "atOnce": at_once, "stopAfterFailures": 1}
    spec = {
        "nodeSelector": {"matchLabels": dict(labels)},
        "priority": priority,
        "policy": dict(policy),
        "rollout": rollout,
    }
    return {
        "apiVersion": "criproxy.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def topology_definition() -> Object:
    """The CRD of NodeResourceTopology, as schedulers that read it bring it."""
    group, quantity = "topology.node.k8s.io", {"x-kubernetes-int-or-string": True, "anyOf": [INTEGER, TEXT]}
    attribute = _object({"name": TEXT, "value": TEXT}, "name", "value")
    cost = _object({"name": TEXT, "value": INTEGER}, "name", "value")
    amounts = ("capacity", "allocatable", "available")
    resource = _object({"name": TEXT, **dict.fromkeys(amounts, quantity)}, "name", *amounts)
    lists = {"costs": cost, "attributes": attribute, "resources": resource}
    zone = _object({"name": TEXT, "type": TEXT, "parent": TEXT, **_lists(lists)}, "name", "type")
    schema = _object(
        {"apiVersion": TEXT, "kind": TEXT, "metadata": {"type": "object"}}
        | _lists({"topologyPolicies": TEXT, "attributes": attribute, "zones": zone}),
        "zones",
    )
    names = {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies", "singular": "noderesourcetopology"}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"noderesourcetopologies.{group}", "annotations": approved},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {**names, "listKind": "NodeResourceTopologyList", "shortNames": ["node-res-topo"]},
            "versions": [version],
        },
    }


def _object(properties: Object, *required: str) -> Object:
    return {"type": "object", "properties": properties, "required": list(required)}


def _lists(items: Object) -> Object:
    return {name: {"type": "array", "items": each} for name, each in items.items()}
