"""The HTTP API of ``--http``: metrics and health. Imported only where that option is given: aiohttp starts slowly."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web

from criproxy.observe.http_limits import (
    BURST,
    CONNECTIONS_PER_S,
    RENDER_BURST,
    RENDERS_PER_S,
    Acceptor,
    Bucket,
    Rendered,
)
from criproxy.wire.sockets import Listener

Health = Callable[[], Awaitable[str | None]]
"""None where all is well, else a sentence that says what is not."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the answers come from."""

    metrics: Callable[[str], tuple[bytes, str]]
    """Accept header → the metrics and their content type."""
    healthy: Health
    ready: Health


class HttpServer:
    """Serves `Sources` on a socket that listens already."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._rendered = Rendered(sources.metrics, Bucket(RENDERS_PER_S, RENDER_BURST))
        self._accepting: asyncio.Task[None] | None = None
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, listener: Listener) -> None:
        """Serve on *listener*, which stays the caller's."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        acceptor = Acceptor(server, Bucket(CONNECTIONS_PER_S, BURST))
        self._accepting = asyncio.create_task(acceptor.run(listener.sock), name="accept HTTP connections")

    async def stop(self) -> None:
        """Serve no more; the calls under way end first."""
        if self._accepting is not None:
            self._accepting.cancel()
            with suppress(asyncio.CancelledError):
                await self._accepting
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._rendered(request.headers.get("Accept", ""))
        return _last(web.Response(body=body, headers={"Content-Type": content_type}))

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _health(await self._sources.healthy())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _health(await self._sources.ready())


def _health(problem: str | None) -> web.Response:
    return _last(web.Response(text="ok\n") if problem is None else web.Response(status=503, text=f"{problem}\n"))


def _last(response: web.Response) -> web.Response:
    """A connection has one request; see `http_limits`."""
    response.force_close()
    return response
