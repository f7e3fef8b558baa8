"""The HTTP API of ``--http``: metrics, health and what the caller adds.

Imported only with that option: the import of aiohttp is slow.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from criproxy.process.http import limits
from criproxy.process.http.address import is_loopback
from criproxy.process.http.limits import Handler
from criproxy.process.tasks import PART_S, Bucket, Tasks, in_full
from criproxy.wire.sockets import Listener

LAST_S = 1.0
"""How long requests in flight may take when the server stops."""
Health = Callable[[], Awaitable[str | None]]
"""Returns None if there is no problem, else a sentence about it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the answers."""

    metrics: Callable[[str], tuple[bytes, str]]
    """Accept header → the metrics and their content type."""
    healthy: Health
    ready: Health
    refresh: Callable[[], Awaitable[object]] | None = None
    """What the metrics wait for: it updates what they show."""


class HttpServer:
    """Serves `Sources` on a listening socket.

    Args:
        sources: return the answers.
        tasks: the tasks of this server, which end with it.
        more: further paths.
    """

    def __init__(self, sources: Sources, tasks: Tasks, more: Iterable[web.RouteDef] = ()) -> None:
        self._sources, self._tasks = sources, tasks
        self._rendered = limits.Rendered(sources.metrics, Bucket(limits.RENDERS_PER_S, limits.RENDER_BURST))
        app = web.Application(client_max_size=limits.MOST_REQUEST_BYTES, middlewares=[limits.bounded])
        self._names_must_be_ours = False
        paths: dict[str, Handler] = {
            "/metrics": self._metrics,
            "/healthz": partial(_probe, sources.healthy),
            "/readyz": partial(_probe, sources.ready),
        }
        for path, handler in paths.items():
            app.router.add_get(path, partial(self._for_us, handler))
        app.router.add_routes(more)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=LAST_S)

    async def start(self, listener: Listener) -> None:
        """Serve on *listener*, which the caller closes."""
        place = listener.sock.getsockname()
        self._names_must_be_ours = isinstance(place, tuple) and is_loopback(place[0])
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        acceptor = limits.Acceptor(server, Bucket(limits.CONNECTIONS_PER_S, limits.BURST))
        self._tasks.forever("accept HTTP connections", partial(acceptor.run, listener.sock))

    async def stop(self) -> None:
        """Stop serving; requests in flight end first, or are cut after a moment."""
        await self._tasks.stop()
        with suppress(TimeoutError):
            await in_full(self._runner.cleanup(), LAST_S + PART_S)

    async def _for_us(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        """Answer, unless a web site has led its name to our loopback address (DNS rebinding)."""
        if self._names_must_be_ours and not is_loopback(request.headers.get("Host", "localhost")):
            return closing(web.Response(status=403, text="this address is only for clients on this machine\n"))
        return await handler(request)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._sources.refresh is not None:
            await self._sources.refresh()
        body, content_type = self._rendered(request.headers.get("Accept", ""))
        return closing(web.Response(body=body, headers={"Content-Type": content_type}))


async def _probe(health: Health, _request: web.Request) -> web.Response:
    problem = await health()
    return closing(web.Response(text="ok\n") if problem is None else web.Response(status=503, text=f"{problem}\n"))


def closing(response: web.Response) -> web.Response:
    """Close the connection after *response*: it has one request, see `limits`."""
    response.force_close()
    return response
