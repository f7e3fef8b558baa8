"""What a call is about, by its path: for people who ask which calls come, and when the last one came."""

CONTAINERS, PODS, POLLS, IMAGES, STREAMS, OTHER = "containers", "pods", "polls", "images", "streams", "other"
CLASSES = (CONTAINERS, PODS, POLLS, IMAGES, STREAMS, OTHER)
"""In the order in which they are shown."""

_IMAGE_SERVICE = "ImageService"
_STREAMS = frozenset({"Attach", "Exec", "ExecSync", "GetContainerEvents", "PortForward", "ReopenContainerLog"})
_ASKING = ("List", "Stream", "Get")
"""Beginnings of the names of methods that only ask."""
_POLLS = frozenset({"Version", "Status", "RuntimeConfig", "ContainerStatus", "PodSandboxStatus", "UpdateRuntimeConfig"})


def class_of(path: str) -> str:
    """One of `CLASSES` for the method *path*, such as ``/runtime.v1.RuntimeService/CreateContainer``."""
    service, _, name = path.removeprefix("/").partition("/")
    if not service.startswith("runtime.v1") or not name:
        return OTHER
    if service.endswith(f".{_IMAGE_SERVICE}"):
        return IMAGES
    if name in _STREAMS:
        return STREAMS
    if name in _POLLS or name.startswith(_ASKING) or name.endswith("Stats"):
        return POLLS
    if "PodSandbox" in name or name.endswith("Pod"):
        return PODS
    return CONTAINERS if "Container" in name else OTHER
