"""Which creates are those of clients of MPS, and whose shared memory they get."""

import pytest

from criproxy.devices.evidence.device_request import DeviceRequest, EnvVar, MountPoint
from criproxy.devices.mps_client import MpsClient, mps_client, with_shared_memory

GPU, AT_ROOT = "/mps/nvidia.com/gpu/pipe", "/nvidia.com/gpu/pipe"
CLIENT = MpsClient("/run/nvidia/mps/nvidia.com/gpu/pipe", "/run/nvidia/mps/shm")
PIPE, SHM = MountPoint(GPU, CLIENT.pipe), MountPoint("/dev/shm", CLIENT.shared_memory)
LOG = MountPoint("/dev/termination-log", "/pods/log")
OTHER = MountPoint("/dev/shm/", "/pods/volumes/shm")
SLASHES = MountPoint("//dev/shm", "/pods/volumes/shm")


def create(*mounts: MountPoint, pipe: str = GPU) -> DeviceRequest:
    """A create with mounts, and the variable."""
    return DeviceRequest(envs=(EnvVar("A", b"1"), EnvVar("CUDA_MPS_PIPE_DIRECTORY", pipe.encode())), mounts=mounts)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(create(PIPE, SHM), CLIENT, id="as-our-plugin-writes-it"),
        pytest.param(create(LOG, SHM, PIPE), CLIENT, id="in-any-order"),
        pytest.param(create(MountPoint(GPU, AT_ROOT)), MpsClient(AT_ROOT, "/shm"), id="root"),
        pytest.param(DeviceRequest(mounts=(PIPE, SHM)), None, id="without-the-variable"),
        pytest.param(create(SHM), None, id="without-the-mount"),
        pytest.param(create(MountPoint(GPU, "/tmp/pipe")), None, id="from-elsewhere"),
        pytest.param(create(MountPoint("/tmp/mps", "/tmp/mps"), pipe="/tmp/mps"), None, id="the-pods-own"),
    ],
)
def test_clients(asked: DeviceRequest, expected: MpsClient | None) -> None:
    """The variable and the mount together make a client; the daemon's directory is the source of the mount."""
    assert mps_client(asked) == expected


def test_variable_of_the_pod_beside_it() -> None:
    """A pod's own variable comes after that of the plugin, which counts."""
    asked = create(PIPE, SHM)
    asked = DeviceRequest(envs=(*asked.envs, EnvVar("CUDA_MPS_PIPE_DIRECTORY", b"/tmp")), mounts=asked.mounts)

    assert mps_client(asked) == CLIENT


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        pytest.param((PIPE, SHM, LOG), (PIPE, SHM, LOG), id="alone"),
        pytest.param((PIPE, SHM, LOG, OTHER), (PIPE, SHM, LOG), id="another-after-it"),
        pytest.param((OTHER, PIPE, SHM), (PIPE, SHM), id="another-before-it"),
        pytest.param((PIPE, SHM, SLASHES), (PIPE, SHM), id="another-with-two-slashes"),
        pytest.param((PIPE, SHM, SHM), (PIPE, SHM), id="twice"),
        pytest.param((PIPE, OTHER), (PIPE, OTHER), id="none-of-the-daemon"),
    ],
)
def test_shared_memory(mounts: tuple[MountPoint, ...], expected: tuple[MountPoint, ...]) -> None:
    """The shared memory of the daemon replaces every other; all other mounts stay in their order."""
    asked = create(*mounts)

    assert with_shared_memory(asked, CLIENT).mounts == expected
    assert with_shared_memory(with_shared_memory(asked, CLIENT), CLIENT).mounts == expected
