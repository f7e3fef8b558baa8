"""ExecSync's built-in commands, and the URLs of the streaming calls."""

import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec

POD = PodSpec("pod", (ContainerSpec("main", IMAGE),))


@pytest.fixture
async def container_id(kubelet: MiniKubelet) -> str:
    """Run one container."""
    return (await kubelet.run_pod(POD))[1]["main"]


async def execute(client: RuntimeClient, container_id: str, *command: str, timeout_s: int = 0) -> cri.ExecSyncResponse:
    """Call ExecSync."""
    request = cri.ExecSyncRequest(container_id=container_id, cmd=command, timeout=timeout_s)
    return await client.call("ExecSync", request, cri.ExecSyncResponse)


@pytest.mark.parametrize(
    ("command", "stdout", "exit_code"),
    [
        (("/bin/echo", "a", "b"), b"a b\n", 0),
        (("true",), b"", 0),
        (("false",), b"", 1),
        (("sleep", "0"), b"", 0),
        (("cat", "/sys/fs/cgroup/cpuset/cpuset.cpus"), b"0-3\n", 0),
        (("cat", "/sys/fs/cgroup/cpuset/cpuset.mems"), b"0\n", 0),
        (("cat", "/nowhere"), b"", 1),
        (("sleep", "long"), b"", 1),
    ],
)
async def test_built_in_commands_answer(
    client: RuntimeClient, container_id: str, command: tuple[str, ...], stdout: bytes, exit_code: int
) -> None:
    """A container can be asked where it runs."""
    reply = await execute(client, container_id, *command)

    assert (reply.stdout, reply.exit_code) == (stdout, exit_code)


async def test_a_container_can_be_told_to_end(client: RuntimeClient, container_id: str) -> None:
    """``kill 1`` ends its process as SIGTERM would."""
    await execute(client, container_id, "kill", "1")

    status = (await client.container_status(container_id)).status
    assert (status.state, status.exit_code) == (cri.CONTAINER_EXITED, 143)
    with pytest.raises(RuntimeCallError, match="failed to exec in container: container is in CONTAINER_EXITED state"):
        await execute(client, container_id, "true")
