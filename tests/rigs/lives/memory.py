"""gRPC without sockets: what is served and called in one process, in the words of grpc.aio as far as criproxy uses it.

The sockets exist as files, and are bound and listen: whoever looks at them sees what he would see otherwise.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, Self

import grpc
import pytest
from grpc.aio import AbortError, AioRpcError, Metadata

from criproxy.errors import StatusCode
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Rule, Table
from tests.control import world

_RETRY_S = 0.02
_served: dict[int, "_Serving"] = {}
"""Who answers at a socket, by its inode."""


def install(patch: pytest.MonkeyPatch) -> None:
    """Use it in this process."""
    _served.clear()
    patch.setattr(grpc.aio, "server", Server)
    patch.setattr(grpc.aio, "insecure_channel", Channel)
    patch.setattr(world, "Proxy", Proxy)


def failure(code: grpc.StatusCode, text: str) -> AioRpcError:
    """How a call ends otherwise than with a message."""
    return AioRpcError(code, Metadata(), Metadata(), details=text)


class Context:
    """What a handler gets of its call."""

    async def abort(self, code: grpc.StatusCode, text: str = "") -> NoReturn:
        """End the call with an error."""
        raise _Aborted(failure(code, text))


class _Aborted(AbortError):
    def __init__(self, error: AioRpcError) -> None:
        super().__init__(error.details())
        self.error = error


class _Serving:
    """Answers at one socket until it is closed."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        self.find = find
        """The handler of a path."""
        self.calls: set[asyncio.Task[Any]] = set()
        self.closed = False

    def close(self) -> None:
        """Nobody answers any more; calls under way end."""
        self.closed = True
        for call in self.calls:
            call.cancel()


class Server:
    """In place of `grpc.aio.server`."""

    def __init__(self, options: object = None) -> None:
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._path = ""
        self._inode = 0
        self._serving = _Serving(self._find)

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve these."""
        self._handlers += handlers

    def add_insecure_port(self, address: str) -> int:
        """Listen at a socket, in place of any that is there, as gRPC does.

        Raises:
            RuntimeError: that is not possible.
        """
        self._path = address.removeprefix("unix:").removeprefix("//")
        try:
            _remove(self._path)
            self._socket.bind(self._path)
            self._socket.listen(64)
        except OSError as error:
            raise RuntimeError(f"Failed to bind to address {address}") from error
        self._inode = _inode(self._path)
        return 1

    async def start(self) -> None:
        """Answer from now on."""
        _served[self._inode] = self._serving

    async def stop(self, grace: float | None = None) -> None:
        """Answer no more, and remove the socket."""
        _served.pop(self._inode, None)
        self._serving.close()
        self._socket.close()
        _remove(self._path)

    def _find(self, path: str) -> Any:  # noqa: ANN401 (a handler of any kind)
        details: Any = _Details(path)
        return next(filter(None, (each.service(details) for each in self._handlers)), None)


class _Details:
    invocation_metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


class Channel:
    """In place of `grpc.aio.insecure_channel`."""

    def __init__(self, target: str, options: object = None) -> None:
        self._path = target.removeprefix("unix:").removeprefix("//")
        self._calls: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what is under way."""
        for call in self._calls:
            call.cancel()

    def get_state(self) -> grpc.ChannelConnectivity:
        """Always usable: each call looks who answers."""
        return grpc.ChannelConnectivity.READY

    def unary_unary(self, path: str, request_serializer: Any = None, response_deserializer: Any = None) -> Any:  # noqa: ANN401 (as gRPC)
        """A method that answers once."""

        async def call(request: Any, timeout: float | None = None, wait_for_ready: bool = False) -> Any:  # noqa: ANN401, ASYNC109 (as gRPC)
            data = request_serializer(request) if request_serializer else request
            try:
                async with asyncio.timeout(timeout):
                    serving = await self._found(wait=wait_for_ready)
                    reply = await self._run(serving, _once(serving.find(path), path, data))
            except TimeoutError:
                raise failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
            return response_deserializer(reply) if response_deserializer else reply

        return call

    def unary_stream(self, path: str, request_serializer: Any = None, response_deserializer: Any = None) -> Any:  # noqa: ANN401 (as gRPC)
        """A method that answers with a stream."""

        def call(request: Any) -> Stream:  # noqa: ANN401 (as gRPC)
            return Stream(self, path, request_serializer(request), response_deserializer)

        return call

    async def _found(self, *, wait: bool) -> _Serving:
        while (serving := _at(self._path)) is None:
            if not wait:
                raise failure(grpc.StatusCode.UNAVAILABLE, f"failed to connect to {self._path}")
            await asyncio.sleep(_RETRY_S)
        return serving

    async def _run(self, serving: _Serving, work: Awaitable[Any]) -> Any:  # noqa: ANN401 (a message)
        """What the call gives, which ends with the server, with the channel and with its caller."""
        task = asyncio.ensure_future(work)
        for calls in (serving.calls, self._calls):
            calls.add(task)
            task.add_done_callback(calls.discard)
        task.add_done_callback(_heard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if serving.closed and task.cancelled() and not (caller and caller.cancelling()):
                raise failure(grpc.StatusCode.UNAVAILABLE, "Socket closed") from None
            task.cancel()
            raise
        except _Aborted as aborted:
            raise aborted.error from None


class Stream:
    """The messages of one call."""

    def __init__(self, channel: Channel, path: str, data: bytes, parse: Callable[[bytes], Any]) -> None:
        self._channel, self._path, self._data, self._parse = channel, path, data, parse
        self._messages = asyncio.Queue[bytes](1)
        self._task: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncIterator[Any]:
        serving = await self._channel._found(wait=False)
        self._task = asyncio.create_task(self._channel._run(serving, self._follow(serving)))
        self._task.add_done_callback(_heard)
        try:
            while True:
                getting = asyncio.ensure_future(self._messages.get())
                try:
                    await asyncio.wait({getting, self._task}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    getting.cancel()
                if getting.done() and not getting.cancelled():
                    yield self._parse(getting.result())
                elif self._task.done():
                    self._task.result()
                    return
        finally:
            self.cancel()

    def cancel(self) -> None:
        """End the call."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, serving: _Serving) -> None:
        handler = serving.find(self._path)
        if handler is None or handler.unary_stream is None:
            raise failure(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {self._path}")
        request = handler.request_deserializer(self._data) if handler.request_deserializer else self._data
        messages = handler.unary_stream(request, Context())
        try:
            async for reply in messages:
                serialise = handler.response_serializer
                await self._messages.put(serialise(reply) if serialise else reply)
        finally:
            await messages.aclose()


def _heard(task: asyncio.Task[Any]) -> None:
    """Nobody may be left to hear how a call has ended."""
    if not task.cancelled():
        task.exception()


async def _once(handler: Any, path: str, data: bytes) -> bytes:  # noqa: ANN401 (of any kind)
    if handler is None or handler.unary_unary is None:
        raise failure(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {path}")
    request = handler.request_deserializer(data) if handler.request_deserializer else data
    reply = await handler.unary_unary(request, Context())
    serialised: bytes = handler.response_serializer(reply) if handler.response_serializer else reply
    return serialised


def _remove(path: str) -> None:
    if path:
        Path(path).unlink(missing_ok=True)


def _inode(path: str) -> int:
    return Path(path).stat().st_ino


def _at(path: str) -> _Serving | None:
    try:
        return _served.get(_inode(path))
    except OSError:
        return None


class Proxy:
    """In place of `criproxy.wire.server.Proxy`: the rules of the table, without HTTP/2 around them."""

    def __init__(self, runtime_path: str, table: Table, *, on_error: Any, on_runtime_lost: Callable[[], None]) -> None:  # noqa: ANN401
        self._runtime = Channel(f"unix://{runtime_path}")
        self._table = table
        self._on_error = on_error
        self._on_runtime_lost = on_runtime_lost
        self._numbers = count(1)
        self._serving = _Serving(lambda path: grpc.unary_unary_rpc_method_handler(partial(self._call, path)))
        self._inode = 0

    async def start(self, sock: socket.socket) -> None:
        """Answer at *sock*."""
        self._inode = _inode(sock.getsockname())
        _served[self._inode] = self._serving

    def use(self, table: Table) -> None:
        """Apply other rules."""
        self._table = table

    async def drain(self, grace_s: float) -> None:
        """Answer no more."""
        _served.pop(self._inode, None)
        if self._serving.calls:
            await asyncio.wait(self._serving.calls, timeout=grace_s)
        self._serving.close()
        await self._runtime.close()

    async def _call(self, path: str, data: bytes, context: Context) -> bytes:
        rule = self._table.get(path, Rule())
        call = Call(path, 1, next(self._numbers), "identity")
        call.request, call.rule = data, rule
        verdict = await self._verdict(rule, call, data)
        if isinstance(verdict, Refuse):
            _tell(rule, call, OutcomeKind.NOT_SENT)
            await context.abort(_code(verdict.code), verdict.text)
        try:
            reply: bytes = await self._runtime.unary_unary(path)(data if verdict.message is None else verdict.message)
        except AioRpcError as error:
            is_away = error.code() is grpc.StatusCode.UNAVAILABLE
            _tell(rule, call, OutcomeKind.UNKNOWN if is_away else OutcomeKind.FAILED)
            if is_away:
                self._on_runtime_lost()
            raise
        except asyncio.CancelledError:
            _tell(rule, call, OutcomeKind.UNKNOWN)
            raise
        edited = rule.edit(call, reply) if rule.edit else None
        if rule.done:
            rule.done(call, Outcome(OutcomeKind.OK, reply))
        return reply if edited is None else edited

    async def _verdict(self, rule: Rule, call: Call, data: bytes) -> Proceed | Refuse:
        if rule.hold is None:
            return Proceed()
        try:
            return await rule.hold(call, data)
        except Exception as error:  # noqa: BLE001 (as the data plane)
            verdict: Proceed | Refuse = await self._on_error(call, data, error)
            return verdict


def _tell(rule: Rule, call: Call, kind: OutcomeKind) -> None:
    if rule.done:
        rule.done(call, Outcome(kind))


def _code(code: StatusCode) -> grpc.StatusCode:
    return next(each for each in grpc.StatusCode if each.value[0] == code.value)
