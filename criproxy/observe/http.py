"""The HTTP API of ``--http``: metrics and health. Imported only where that option is given: aiohttp starts slowly."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

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
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, listener: Listener) -> None:
        """Serve on *listener*, which stays the caller's."""
        await self._runner.setup()
        await web.SockSite(self._runner, listener.sock).start()

    async def stop(self) -> None:
        """Serve no more; the calls under way end first."""
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._sources.metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _health(await self._sources.healthy())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _health(await self._sources.ready())


def _health(problem: str | None) -> web.Response:
    return web.Response(text="ok\n") if problem is None else web.Response(status=503, text=f"{problem}\n")
