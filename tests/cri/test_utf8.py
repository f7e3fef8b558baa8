"""Messages whose strings are not UTF-8, as runtimes in Go pass them on."""

from pathlib import Path

import grpc
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate, utf8
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.errors import StatusCode

MARK = b"MARK"
BAD = b"\xff\xfeok"
"""As long as the mark, which it replaces in a message that is written already."""


def spoilt(message: Message) -> bytes:
    """*message* with bytes that are not UTF-8 in place of each mark."""
    return message.SerializeToString().replace(MARK, BAD)


def sandboxes() -> api.ListPodSandboxResponse:
    """Two, of which the first has an annotation with a mark."""
    good = api.PodSandbox(id="b", labels={"app": "é"})
    return api.ListPodSandboxResponse(items=[api.PodSandbox(id="a", annotations={"x": MARK.decode()}), good])


@given(st.dictionaries(st.text(), st.text()), st.lists(st.text()), st.binary())
def test_what_is_utf8_is_read_as_protobuf_reads_it(annotations: dict[str, str], args: list[str], value: bytes) -> None:
    """Maps, lists and real bytes are the same, read in either way."""
    config = api.ContainerConfig(annotations=annotations, args=args)
    config.envs.add(key="A", value=value)
    kind, message = api.CreateContainerRequest, api.CreateContainerRequest(config=config)
    data = message.SerializeToString()

    assert utf8.parse(kind, data) == utf8._repaired(kind, utf8._twin(kind, data)) == message


def test_one_bad_string_of_a_list_spoils_nothing_else() -> None:
    """It has U+FFFD for each byte, and what stands beside it is as it was."""
    found = utf8.parse(api.ListPodSandboxResponse, spoilt(sandboxes()))

    assert (found.items[0].annotations["x"], found.items[1]) == ("��ok", sandboxes().items[1])


def test_bytes_may_be_anything() -> None:
    """The value of an environment variable is bytes in CRI: it stays as it is beside a string that does not."""
    config = api.ContainerConfig(args=[MARK.decode()])
    config.envs.add(key="A", value=b"\xff\x00")

    found = utf8.parse(api.CreateContainerRequest, spoilt(api.CreateContainerRequest(config=config)))

    assert (found.config.args[0], found.config.envs[0].value) == ("��ok", b"\xff\x00")


def test_what_is_no_message_is_none() -> None:
    """Only strings are forgiven."""
    with pytest.raises(DecodeError):
        utf8.parse(api.ListPodSandboxResponse, b"\xff\xff\xff")
    with pytest.raises(translate.UnreadableMessage, match=r"these 3 bytes are no runtime.v1.ListPodSandboxResponse"):
        translate.view(api.ListPodSandboxResponse, b"\xff\xff\xff")


def test_what_would_be_sent_on_changed_is_refused() -> None:
    """A create is written anew for the runtime: its strings must come out as they went in."""
    message = spoilt(api.CreateContainerRequest(config=api.ContainerConfig(args=[MARK.decode()])))

    with pytest.raises(translate.NotUtf8, match=r"^config.args of this runtime.v1.CreateContainerRequest is not UTF-8"):
        translate.read(api.CreateContainerRequest, message)


def test_strings_that_are_not_utf8_are_named() -> None:
    """Single ones, lists, maps and those of messages in lists; neither bytes nor halves that fit together are wrong."""
    bad = MARK.decode()
    config = api.ContainerConfig(working_dir=bad, annotations={"x": bad}, labels={bad: "x"})
    config.envs.add(key="A", value=b"\xff")
    config.envs.add(key=bad)
    config.mounts.add(container_path="/a", uidMappings=[api.IDMapping()])
    request = api.CreateContainerRequest(config=config)
    request.sandbox_config.metadata.name = bad

    assert utf8.invalid_strings(api.CreateContainerRequest, spoilt(request)) == (
        "config.working_dir",
        "config.envs.key",
        "config.labels.key",
        "config.annotations.value",
        "sandbox_config.metadata.name",
    )
    with pytest.raises(
        translate.NotUtf8, match=r"^config.working_dir, config.envs.key, config.labels.key and 2 more of this"
    ):
        translate.read(api.CreateContainerRequest, spoilt(request))
    halves = api.ContainerConfig(args=["MARK", "NARK"]).SerializeToString()
    halves = halves.replace(b"MARK", b"abc\xc3").replace(b"NARK", b"\xa9abc")
    assert utf8.invalid_strings(api.ContainerConfig, halves) == ("args",)
    assert utf8.invalid_strings(api.CreateContainerRequest, request.SerializeToString()) == ()


@pytest.mark.parametrize(
    ("args", "named"), [("x", ("config.envs",)), (MARK.decode(), ("config.args",))], ids=["in-it", "elsewhere"]
)
def test_a_very_long_list_is_not_searched(args: str, named: tuple[str, ...]) -> None:
    """It is named if nothing else is wrong."""
    request = api.CreateContainerRequest(config=api.ContainerConfig(args=[args]))
    request.config.envs.extend([api.KeyValue(key="A")] * utf8.MOST_SEARCHED)
    request.config.envs.add(key=MARK.decode())

    assert utf8.invalid_strings(api.CreateContainerRequest, spoilt(request)) == named


def test_what_identifies_a_create_is_read_without_the_rest() -> None:
    """Names, cgroup and sizes, whichever string is wrong."""
    request = api.CreateContainerRequest(pod_sandbox_id="s")
    request.config.args.append("x")
    request.config.metadata.name = MARK.decode()
    request.config.linux.resources.cpu_shares = 2
    request.sandbox_config.labels["x"] = "y"
    request.sandbox_config.metadata.namespace = "team"
    request.sandbox_config.linux.cgroup_parent = "/kubepods"

    found = translate.view_identity(spoilt(request))

    request.config.ClearField("args")
    request.sandbox_config.ClearField("labels")
    request.config.metadata.name = "��ok"
    assert found == request
    with pytest.raises(translate.UnreadableMessage):
        translate.view_identity(b"\xff")


class _Runtime(grpc.GenericRpcHandler):
    """Answers each method with the same bytes."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply

    def service(self, handler_call_details: object) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Whatever is asked."""

        async def answer(_request: bytes, _context: object) -> bytes:
            return self.reply

        return grpc.unary_unary_rpc_method_handler(answer)


async def listed(path: Path, reply: bytes) -> list[str]:
    """The ids of the sandboxes in *reply*, asked for as criproxy asks."""
    server = grpc.aio.server(handlers=[_Runtime(reply)])
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    client = RuntimeClient(f"unix://{path}")
    try:
        return [sandbox.id for sandbox in await client.list_pod_sandbox()]
    finally:
        await client.close()
        await server.stop(None)


async def test_a_runtime_lists_what_is_not_utf8(tmp_path: Path) -> None:
    """One annotation of one sandbox keeps no node from being known."""
    assert await listed(tmp_path / "runtime.sock", spoilt(sandboxes())) == ["a", "b"]


async def test_a_reply_that_cannot_be_read_is_a_failed_call(tmp_path: Path) -> None:
    """It is reported like any other failure of the runtime, and asked for again."""
    with pytest.raises(RuntimeCallError, match=r"the reply is not a runtime.v1.ListPodSandboxResponse") as caught:
        await listed(tmp_path / "runtime.sock", b"\xff\xff\xff")
    assert caught.value.code is StatusCode.INTERNAL
