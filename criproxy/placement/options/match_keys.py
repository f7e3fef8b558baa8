"""What a container is in match expressions: the keys of affinities and of balloon types, those of CRI-RM."""

from collections.abc import Callable, Mapping
from functools import partial

from criproxy.model.node import Node
from criproxy.model.text.annotations import effective
from criproxy.model.workload import Container, Pod
from criproxy.placement.alloc.affinity.expressions import Attribute

_READERS: Mapping[str, Callable[[Container], str]] = {
    "name": lambda container: container.name,
    "namespace": lambda container: container.namespace,
    "qosclass": lambda container: container.qos.value,
    "id": lambda container: container.key,
    "pod/name": lambda container: container.pod_name,
    "pod/namespace": lambda container: container.namespace,
    "pod/qosclass": lambda container: container.qos.value,
    "pod/id": lambda container: container.pod,
    "labels/io.kubernetes.container.name": lambda container: container.name,
    "labels/io.kubernetes.pod.name": lambda container: container.pod_name,
    "labels/io.kubernetes.pod.namespace": lambda container: container.namespace,
}
"""The keys whose value comes from the container itself."""


_NAMED = ("labels", "tags", "annotations")
"""What of a pod has a name, after a slash."""
KEYS = "name, namespace, qosclass, id, uid, labels/L, tags/T, pod/name, pod/uid, pod/labels/L, pod/annotations/A"
"""What there is, for people."""


def is_key(key: str) -> bool:
    """Whether some container could have a value for *key*."""
    kind, slash, name = key.removeprefix("pod/").partition("/")
    return key in _READERS or (kind == "uid" and not slash) or (kind in _NAMED and bool(name))


def is_of_pod(key: str) -> bool:
    """Whether all containers of a pod have the same value for *key*, which is the pod's own."""
    return key not in _READERS and key.removeprefix("pod/").partition("/")[0] in ("uid", "labels", "annotations")


def attribute_of(node: Node, container: Container) -> Attribute:
    """The values of keys for *container*: name, namespace, qosclass, id, uid, labels/X, tags/X, and pod/… for its pod.

    A container has no labels but the kubelet's, so that labels/X is the pod's where the kubelet gives no such one.
    tags/X are annotations of criproxy or its peers, pod/annotations/X is one by its full name.
    """
    return partial(_value, node, container)


def _value(node: Node, container: Container, key: str) -> str | None:
    if read := _READERS.get(key):
        return read(container)
    pod = node.pods.get(container.pod)
    return _of_pod(pod, container, key) if pod else None


def _of_pod(pod: Pod, container: Container, key: str) -> str | None:
    """The values that come from the pod itself."""
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
