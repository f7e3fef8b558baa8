"""A connection to the runtime's NRI socket: its calls are answered, and ours sent, both at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from criproxy.errors import CriproxyError, StatusCode
from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.frames import MESSAGE_MAX_BYTES, PLUGIN, RUNTIME, Frame, Frames, Kind, Malformed, encoded

READ_BYTES = 1 << 18
PACKAGE = "nri.pkg.api.v1alpha1."
_PLUGIN_SERVICE, _RUNTIME_SERVICE = PACKAGE + "Plugin", PACKAGE + "Runtime"
_REPLY_MAX_BYTES = MESSAGE_MAX_BYTES - 16
"""A reply in its response."""
_UNANSWERED_MAX = 256
"""Calls of the runtime at once; it makes one after the other, so more are a mistake."""

Answer = Callable[[str, bytes], Awaitable[bytes]]
"""Gets the name of a method and its request; returns the reply, or raises `CallFailed`."""


class CallFailed(CriproxyError):
    """The answer to a call is an error, here or there."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Ended(CriproxyError):
    """The connection has ended; the text says why."""

    code = StatusCode.UNAVAILABLE


@dataclass(slots=True, repr=False)
class Connection:
    """One connection, from its first byte on.

    Args:
        answer: answers the runtime's calls; of what it raises beside `CallFailed`, the runtime does not get the text.
        failed: is called with such an error, and the name of the method.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answer: Answer
    failed: Callable[[str, Exception], None]
    _calls: dict[int, asyncio.Future[bytes]] = field(default_factory=dict)
    """Ours, by stream id."""
    _answers: set[asyncio.Task[None]] = field(default_factory=set)
    _last_stream: int = -1

    async def run(self) -> None:
        """Read until the connection ends; then, our calls fail, and what is being answered is cancelled.

        Raises:
            Ended: always.
        """
        frames, why = Frames(), "the runtime has closed the connection"
        try:
            while data := await self.reader.read(READ_BYTES):
                for frame in frames.feed(data):
                    self._take(frame)
        except Malformed as error:
            why = f"the runtime sends {error}"
        except OSError as error:
            why = f"the connection to the runtime has failed: {error}"
        finally:
            self._end(why)
        raise Ended(why)

    async def call(self, method: str, request: bytes) -> bytes:
        """Call *method* of the runtime, and return its reply. Not from within an answer: the runtime waits for that.

        Raises:
            CallFailed: the runtime answers with an error.
            Ended: it does not answer any more.
        """
        self._last_stream += 2
        stream = self._last_stream
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[stream] = reply
        message = ttrpc.Request(service=_RUNTIME_SERVICE, method=method, payload=request)
        try:
            self._send(Frame(RUNTIME, stream, Kind.REQUEST, message.SerializeToString()))
            return await reply
        finally:
            del self._calls[stream]

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()

    def _end(self, why: str) -> None:
        self.writer.close()
        for task in self._answers:
            task.cancel()
        for reply in self._calls.values():
            if not reply.done():
                reply.set_exception(Ended(why))

    def _take(self, frame: Frame) -> None:
        if frame.connection == RUNTIME and frame.kind == Kind.RESPONSE:
            self._settle(frame)
        elif frame.connection == PLUGIN and frame.kind == Kind.REQUEST:
            if len(self._answers) >= _UNANSWERED_MAX:
                raise Malformed(f"more than {_UNANSWERED_MAX} calls at once")
            task = asyncio.get_running_loop().create_task(self._serve(frame))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        else:
            raise Malformed(f"a frame of kind {frame.kind} on connection {frame.connection}")

    def _settle(self, frame: Frame) -> None:
        reply = self._calls.get(frame.stream)
        if reply is None or reply.done():  # its caller has given up
            return
        try:
            response = ttrpc.Response.FromString(frame.payload)
        except DecodeError as error:
            raise Malformed("a response that is none") from error
        if number := response.status.code:
            code = StatusCode(number) if number in {*StatusCode} else StatusCode.UNKNOWN
            reply.set_exception(CallFailed(code, response.status.message))
        else:
            reply.set_result(response.payload)

    async def _serve(self, frame: Frame) -> None:
        response = await self._response(frame.payload)
        if not self.writer.is_closing():
            self._send(Frame(PLUGIN, frame.stream, Kind.RESPONSE, response.SerializeToString()))

    async def _response(self, payload: bytes) -> ttrpc.Response:
        method = "?"
        try:
            request = ttrpc.Request.FromString(payload)
            method = request.method
            if request.service != _PLUGIN_SERVICE:
                raise CallFailed(StatusCode.UNIMPLEMENTED, f"no service {request.service}")
            reply = await self.answer(method, request.payload)
            if len(reply) > _REPLY_MAX_BYTES:
                raise CallFailed(StatusCode.RESOURCE_EXHAUSTED, f"the answer has {len(reply)} bytes")
        except CallFailed as error:
            return ttrpc.Response(status=ttrpc.Status(code=error.code, message=str(error)))
        except DecodeError:
            text = f"criproxy cannot read the request of {method}"
            return ttrpc.Response(status=ttrpc.Status(code=StatusCode.INVALID_ARGUMENT, message=text))
        except Exception as error:  # noqa: BLE001 (each call gets an answer)
            self.failed(method, error)
            text = f"criproxy failed in {method}; its log has the cause"
            return ttrpc.Response(status=ttrpc.Status(code=StatusCode.INTERNAL, message=text))
        return ttrpc.Response(payload=reply)

    def _send(self, frame: Frame) -> None:
        self.writer.write(encoded(frame))
