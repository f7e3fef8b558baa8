"""What the create of an MPS client contains: the directory of the daemon's pipe, and the shared memory.

Our device plugin writes it, and the kubelet copies it before the pod's own variables and mounts.
"""

from dataclasses import dataclass, replace
from posixpath import join

from criproxy.devices.classes.device_class import clean_path
from criproxy.devices.evidence.device_request import DeviceRequest, Mount

ROOT = "/mps"
"""Directory in a container with the directories of all daemons."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (a mount of the container)
PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True, slots=True)
class MpsClient:
    """A container that uses the daemon of one resource; all paths are those of the host."""

    pipe: str
    """The directory that the daemon creates."""
    shared_memory: str
    """The shared memory of all daemons."""


def mps_client(asked: DeviceRequest) -> MpsClient | None:
    """Return what the device plugin wrote into a create; None if the container is not an MPS client."""
    for path in (env.value.decode(errors="replace") for env in asked.envs if env.name == PIPE_DIRECTORY):
        below = path.removeprefix(ROOT)  # as on the host, with another root
        for mount in asked.mounts:
            if below != path and mount.container_path == path and mount.host_path.endswith(below):
                return MpsClient(mount.host_path, shared_memory_directory(mount.host_path.removesuffix(below) or "/"))
    return None


def with_shared_memory(asked: DeviceRequest, client: MpsClient) -> DeviceRequest:
    """Return *asked* with the daemon's shared memory only, if the kubelet or the pod mounts another one over it."""
    mounts, source = asked.mounts, clean_path(client.shared_memory)
    places = [number for number, mount in enumerate(mounts) if clean_path(mount.container_path) == SHARED_MEMORY]
    ours = next((number for number in places if clean_path(mounts[number].host_path) == source), None)
    if ours is None or len(places) == 1:
        return asked
    kept = tuple(mount for number, mount in enumerate(mounts) if number == ours or number not in places)
    return replace(asked, mounts=kept)


def shared_memory_directory(root: str) -> str:
    """Return the directory below *root* with the shared memory of all daemons."""
    return join(root, "shm")


def pipe_directory(root: str, resource: str) -> str:
    """Return the directory below *root* where clients of *resource* find its daemon."""
    return join(root, resource, "pipe")


def client_mounts(root: str, resource: str) -> tuple[Mount, Mount]:
    """Return the mounts of a client of *resource*, whose daemon has its directory below *root*."""
    pipe = Mount(pipe_directory(ROOT, resource), pipe_directory(root, resource))
    return pipe, Mount(SHARED_MEMORY, shared_memory_directory(root))
