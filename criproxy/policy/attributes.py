"""What a container is in match expressions: the keys of affinities and of balloon types, those of CRI-RM."""

from criproxy.alloc.expressions import Attribute
from criproxy.model.annotations import effective
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod


def attribute_of(node: Node, container: Container) -> Attribute:
    """The values of keys for *container*: name, namespace, qosclass, id, uid, labels/X, tags/X, and pod/… for its pod.

    A container has no labels but the kubelet's, so that labels/X is the pod's where the kubelet gives no such one.
    tags/X are annotations of criproxy or its peers, pod/annotations/X is one by its full name.
    """
    pod = node.pods.get(container.pod)
    plain = {
        "name": container.name,
        "namespace": container.namespace,
        "qosclass": container.qos.value,
        "id": container.key,
        "pod/name": container.pod_name,
        "pod/namespace": container.namespace,
        "pod/qosclass": container.qos.value,
        "pod/id": container.pod,
        "labels/io.kubernetes.container.name": container.name,
        "labels/io.kubernetes.pod.name": container.pod_name,
        "labels/io.kubernetes.pod.namespace": container.namespace,
    }
    return lambda key: plain[key] if key in plain else _of_pod(pod, container, key) if pod else None


def _of_pod(pod: Pod, container: Container, key: str) -> str | None:
    """What only the pod's own values tell."""
    kind, _, name = key.removeprefix("pod/").partition("/")
    match kind:
        case "uid":
            return pod.uid
        case "labels":
            return pod.labels.get(name)
        case "annotations":
            return pod.annotations.get(name)
        case "tags":
            found = effective(pod.annotations, name, container.name)
            return found[1] if found else None
    return None
