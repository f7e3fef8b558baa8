"""What a container that is a client of MPS is created with: where the daemon's pipe is, and whose shared memory it has.

Our device plugin writes it, and the kubelet repeats it before the pod's own variables and mounts.
"""

from dataclasses import dataclass, replace

from criproxy.devices.device_request import DeviceRequest
from criproxy.devices.paths import clean_path
from criproxy.nvidia.mps import ROOT, SHARED_MEMORY, shared_memory_directory

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True, slots=True)
class MpsClient:
    """A container that asks for the daemon of one resource; all paths are those of the host."""

    pipe: str
    """The directory that the daemon makes."""
    shared_memory: str
    """That of all daemons."""


def mps_client(asked: DeviceRequest) -> MpsClient | None:
    """What the device plugin wrote into a create; None where it is no client of MPS."""
    for path in (env.value.decode(errors="replace") for env in asked.envs if env.name == PIPE_DIRECTORY):
        below = path.removeprefix(ROOT)  # as on the host, below another root
        for mount in asked.mounts:
            if below != path and mount.container_path == path and mount.host_path.endswith(below):
                return MpsClient(mount.host_path, shared_memory_directory(mount.host_path.removesuffix(below) or "/"))
    return None


def with_shared_memory(asked: DeviceRequest, client: MpsClient) -> DeviceRequest:
    """*asked* with the daemon's shared memory alone, where the kubelet or the pod mounts another one over it."""
    mounts, source = asked.mounts, clean_path(client.shared_memory)
    places = [number for number, mount in enumerate(mounts) if clean_path(mount.container_path) == SHARED_MEMORY]
    ours = next((number for number in places if clean_path(mounts[number].host_path) == source), None)
    if ours is None or len(places) == 1:
        return asked
    kept = tuple(mount for number, mount in enumerate(mounts) if number == ours or number not in places)
    return replace(asked, mounts=kept)
