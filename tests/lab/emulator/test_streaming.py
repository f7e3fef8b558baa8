"""ExecSync's built-in commands, and the URLs of the streaming calls."""

import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.errors import StatusCode
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


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (("/bin/nope",), StatusCode.UNKNOWN, 'exec: "/bin/nope": stat /bin/nope: no such file or directory: unknown'),
        (("nope",), StatusCode.UNKNOWN, 'exec: "nope": executable file not found in $PATH: unknown'),
        ((), StatusCode.UNKNOWN, "args must not be empty"),
        (("sleep", "60"), StatusCode.DEADLINE_EXCEEDED, "timeout 1s exceeded: context deadline exceeded"),
    ],
)
async def test_commands_fail_in_containerds_words(
    client: RuntimeClient, container_id: str, command: tuple[str, ...], code: StatusCode, text: str
) -> None:
    """Unknown programs, no program, and one that runs out of time."""
    with pytest.raises(RuntimeCallError) as caught:
        await execute(client, container_id, *command, timeout_s=1)

    assert caught.value.code is code
    assert text in caught.value.details


async def test_streaming_calls_give_urls(client: RuntimeClient, container_id: str) -> None:
    """Each call has a URL of its own."""
    sandbox_id = (await client.list_containers())[0].pod_sandbox_id
    exec_request = cri.ExecRequest(container_id=container_id, cmd=["true"], stdout=True)
    attach_request = cri.AttachRequest(container_id=container_id, stdout=True)
    forward_request = cri.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[80])

    urls = [
        (await client.call("Exec", exec_request, cri.ExecResponse)).url,
        (await client.call("Attach", attach_request, cri.AttachResponse)).url,
        (await client.call("PortForward", forward_request, cri.PortForwardResponse)).url,
    ]

    assert [url.split("/")[3] for url in urls] == ["exec", "attach", "portforward"]


async def test_streams_that_make_no_sense_are_refused(client: RuntimeClient, container_id: str) -> None:
    """No stream at all, and stderr beside a terminal."""
    with pytest.raises(RuntimeCallError, match="INVALID_ARGUMENT: one of stdin, stdout, or stderr must be set"):
        await client.call("Exec", cri.ExecRequest(container_id=container_id), cri.ExecResponse)
    both = cri.AttachRequest(container_id=container_id, tty=True, stderr=True)
    with pytest.raises(RuntimeCallError, match="INVALID_ARGUMENT: tty and stderr cannot both be true"):
        await client.call("Attach", both, cri.AttachResponse)
