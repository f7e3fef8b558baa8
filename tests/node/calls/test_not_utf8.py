"""A create that cannot be read: one with a string that is not UTF-8 is its pod's mistake, and no failure of ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.errors import StatusCode
from criproxy.model.record import Kind
from criproxy.node.settings import OnError
from criproxy.wire.calls import Call, Proceed, Refuse
from criproxy.wire.message import MessageError
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, PodSpec, container_config, sandbox_config
from tests.node.world import FAST, GIB, World, owner, said, sharer

LIMIT_S = 60.0
CREATE = "/runtime.v1.RuntimeService/CreateContainer"
DENYING = DeviceRules(classes=(NVIDIA,), privileged="deny", on_no_evidence="hide")
MARK, BAD = b"MARK", b"Z\xff\xfeZ"
"""Equally long: one takes the place of the other in a message that is written already."""


class Lenient(grpc.GenericRpcHandler):
    """A runtime that takes strings that are not UTF-8, as one in Go does; the rest goes to the embedded one."""

    def __init__(self, behind: str) -> None:
        self.behind = grpc.aio.insecure_channel(behind)
        self.creates: list[bytes] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Keep creates, and pass the rest on."""
        method = str(handler_call_details.method)
        ask: Any = self.behind.unary_unary(method)
        listen: Any = self.behind.unary_stream(method)

        async def one(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            if method == CREATE and BAD in request:
                self.creates.append(request)
                return api.CreateContainerResponse(container_id="f" * 64).SerializeToString()
            try:
                return bytes(await ask(request))
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
                raise

        async def many(request: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
            async for reply in listen(request):
                yield reply

        if method.endswith("/GetContainerEvents"):
            return grpc.unary_stream_rpc_method_handler(many)
        return grpc.unary_unary_rpc_method_handler(one)


class Node:
    """A world whose runtime takes any create, and a kubelet that sends bytes."""

    def __init__(self, world: World, runtime: Lenient, channel: grpc.aio.Channel) -> None:
        self.world, self.runtime, self._channel = world, runtime, channel

    async def message(self, pod: PodSpec, mark: str = "args") -> bytes:
        """The create of the pod's container, privileged and asking for every card; *mark* has bytes of no UTF-8."""
        sandbox_id = await self.world.kubelet.run_sandbox(pod)
        request = api.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=container_config(pod, pod.containers[0], 8 * GIB),
            sandbox_config=sandbox_config(pod),
        )
        request.config.envs.add(key="NVIDIA_VISIBLE_DEVICES", value=b"all")
        request.config.linux.security_context.privileged = True
        if mark == "args":
            request.config.args.append(MARK.decode())
        elif mark == "labels":
            request.sandbox_config.labels["x"] = MARK.decode()
        return request.SerializeToString().replace(MARK, BAD)

    async def send(self, message: bytes) -> tuple[StatusCode, str]:
        """What the kubelet hears of a create."""
        create: Any = self._channel.unary_unary(CREATE)
        try:
            await create(message, timeout=CREATE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return StatusCode(error.code().value[0]), error.details() or ""
        return StatusCode.OK, ""


@asynccontextmanager
async def node(directory: Path, way: OnError, rules: DeviceRules | None = DENYING) -> AsyncIterator[Node]:
    """A node with a lenient runtime, and with these settings."""
    (directory / "dev").mkdir()
    world = World(directory, settings=replace(FAST, on_error=way, devices=rules))
    lenient = Lenient(f"unix:{world.runtime.path}")
    server = grpc.aio.server(handlers=[lenient])
    server.add_insecure_port(f"unix:{directory}/lenient.sock")
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        stack.push_async_callback(lenient.behind.close)
        await server.start()
        stack.push_async_callback(server.stop, None)
        await stack.enter_async_context(world)
        world.proxy.runtime_path = f"{directory}/lenient.sock"
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{directory}/criproxy.sock"))
        yield Node(world, lenient, channel)


@pytest.mark.parametrize("way", OnError)
async def test_with_device_rules_no_create_passes_unread(tmp_path: Path, way: OnError) -> None:
    """Whatever `onError` says: the runtime would take the bytes with every card in them."""
    async with node(tmp_path, way) as here:
        whole = await here.message(sharer("web"))

        code, said = await here.send(whole)
        broken, _ = await here.send(whole[:-1])

        assert code is StatusCode.INVALID_ARGUMENT
        assert "default/web/main" in said
        assert "config.args" in said
        assert broken is StatusCode.INVALID_ARGUMENT
        assert here.runtime.creates == []


@pytest.mark.parametrize("way", [OnError.SHARED, OnError.REFUSE])
@pytest.mark.parametrize("rules", [pytest.param(DENYING, id="devices"), pytest.param(None, id="no-devices")])
async def test_it_is_a_refusal_of_the_tenants_container(
    tmp_path: Path, way: OnError, rules: DeviceRules | None
) -> None:
    """The history, `status` and metrics show a refusal, and nothing is wrong with criproxy."""
    async with node(tmp_path, way, rules) as here:
        message = await here.message(sharer("web"))
        for _ in range(2):
            await here.send(message)
        state = here.world.controller.context.state

        assert said(here.world) == []
        assert not here.world.controller.context.failures.recent()
        assert here.world.counters.refusals == {"INVALID_ARGUMENT": 2}
        assert not here.world.counters.fallbacks
        assert [(one.container, one.times) for one in state.refusals()[0]] == [("default/web/main", 2)]
        records = await state.find_history("default/web/main")
        assert {record.kind for record in records} == {Kind.REFUSED}
        assert "call not handled" not in here.world.log.events()
        assert here.world.log.events().count("container refused") == 2


async def test_the_sentence_names_strings_of_the_pod(tmp_path: Path) -> None:
    """Those of its sandbox are in each of its creates."""
    async with node(tmp_path, OnError.SHARED) as here:
        _, said = await here.send(await here.message(sharer("web"), "labels"))

        assert said.startswith("container default/web/main is refused: sandbox_config.labels.value in its ")
        assert said.endswith("write it in UTF-8 in the specification of the pod")


async def test_without_device_rules_it_may_pass(tmp_path: Path) -> None:
    """With ``onError: pass`` the runtime gets the very bytes; no failure is counted, and the history has it."""
    async with node(tmp_path, OnError.PASS, None) as here:
        message = await here.message(sharer("web"))

        assert await here.send(message) == (StatusCode.OK, "")

        assert here.runtime.creates == [message]
        assert said(here.world) == []
        (record,) = await here.world.controller.context.state.find_history("default/web/main")
        assert record.kind is Kind.PASSED
        assert "config.args" in record.sentences[0]


async def test_other_containers_are_placed_as_ever(tmp_path: Path) -> None:
    """A refused create holds no CPUs."""
    async with node(tmp_path, OnError.SHARED, None) as here:
        await here.send(await here.message(owner("web", 2)))

        shop = await here.world.run(owner("shop", 3))

        assert list(here.world.controller.node.containers) == [shop]


@pytest.mark.parametrize(("rules", "passes"), [(DENYING, False), (None, True)])
async def test_a_message_in_an_unknown_encoding(tmp_path: Path, rules: DeviceRules | None, *, passes: bool) -> None:
    """The data plane cannot read it, but the runtime may."""
    async with node(tmp_path, OnError.PASS, rules) as here:
        await here.world.poll(lambda: here.world.controller.ready)
        call = Call(CREATE, 1, 1, "snappy")

        verdict = await here.world.controller.fallback.on_error(call, None, MessageError("a message in snappy"))

        assert isinstance(verdict, Proceed if passes else Refuse)
