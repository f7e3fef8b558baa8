"""gRPC without sockets: what is served and called in one process, in the words of grpc.aio and of `wire.client`.

The sockets exist as files, and are bound and listen: whoever looks at them sees what he would see otherwise.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from errno import ECONNREFUSED
from pathlib import Path
from typing import Any, NoReturn, Self

import grpc
import pytest
from grpc.aio import AbortError, AioRpcError, Metadata

from criproxy.cri import podresources, runtime
from criproxy.errors import StatusCode
from criproxy.wire.client import CallError

_RETRY_S = 0.02
_NOBODY = "failed to connect to"
_served: dict[int, "Serving"] = {}
"""Who answers at a socket, by its inode."""


def install(patch: pytest.MonkeyPatch) -> None:
    """Use it in this process."""
    _served.clear()
    patch.setattr(grpc.aio, "server", Server)
    patch.setattr(grpc.aio, "insecure_channel", Channel)
    for module in (podresources, runtime):
        patch.setattr(module, "Channel", OwnChannel)


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


class Serving:
    """Answers at one socket until it is closed."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        self.find = find
        """The handler of a path."""
        self.calls: set[asyncio.Task[Any]] = set()
        self.closed = False

    def open(self, path: str) -> None:
        """Answer at the socket at *path*."""
        self._number = _inode(path)
        _served[self._number] = self

    def close(self) -> None:
        """Nobody answers any more; calls under way end."""
        self.closed = True
        _served.pop(self._number, None)
        for call in self.calls:
            call.cancel()


class Server:
    """In place of `grpc.aio.server`."""

    def __init__(self, options: object = None) -> None:
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._path = ""
        self._serving = Serving(self._find)

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
        return 1

    async def start(self) -> None:
        """Answer from now on."""
        self._serving.open(self._path)

    async def stop(self, grace: float | None = None) -> None:
        """Answer no more, and remove the socket."""
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
        self.close_now()

    def close_now(self) -> None:
        """The same."""
        for call in self._calls:
            call.cancel()

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

    async def _found(self, *, wait: bool) -> Serving:
        while (serving := _at(self._path)) is None:
            if not wait:
                raise failure(grpc.StatusCode.UNAVAILABLE, f"{_NOBODY} {self._path}")
            await asyncio.sleep(_RETRY_S)
        return serving

    async def _run(self, serving: Serving, work: Awaitable[Any]) -> Any:  # noqa: ANN401 (a message)
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


class OwnChannel:
    """In place of `criproxy.wire.client.Channel`."""

    def __init__(self, path: str, most_bytes: int = 0, name: str = "") -> None:
        self.path = path
        self._channel = Channel(path)

    async def unary(self, method: str, message: bytes, timeout_s: float) -> bytes:
        """The reply."""
        try:
            reply: bytes = await self._channel.unary_unary(method)(message, timeout_s)
            return reply
        except AioRpcError as error:
            raise _call_error(error) from None

    async def stream(self, method: str, message: bytes) -> AsyncGenerator[bytes, None]:
        """The replies."""
        try:
            async for reply in Stream(self._channel, method, message, bytes):
                yield reply
        except AioRpcError as error:
            raise _call_error(error) from None

    def renew(self) -> None:
        """Each call looks who answers."""

    def close(self) -> None:
        """Cancel what is under way."""
        self._channel.close_now()


def _call_error(error: AioRpcError) -> CallError:
    text = str(error.details())
    cause = ConnectionRefusedError(ECONNREFUSED, text) if text.startswith(_NOBODY) else None
    return CallError(StatusCode(error.code().value[0]), text, cause=cause)


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

    async def _follow(self, serving: Serving) -> None:
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


def _at(path: str) -> Serving | None:
    try:
        return _served.get(_inode(path))
    except OSError:
        return None
