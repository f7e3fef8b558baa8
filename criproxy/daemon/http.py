"""Metrics, health and the page over HTTP; a thread imports this module during the first calls, which takes 0.1 s."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.api.metrics.moment import Moment
from criproxy.api.metrics.proxy_metrics import Gauges, registry
from criproxy.api.page.access import Access
from criproxy.api.page.routes import Page, read_files
from criproxy.api.page.source import Looks
from criproxy.api.page.stream import Streams
from criproxy.cri.methods import KNOWN_METHODS
from criproxy.daemon.commands import Commands
from criproxy.process.heartbeat import Heartbeat
from criproxy.process.http.address import Address
from criproxy.process.http.server import HttpServer, Sources
from criproxy.process.log import LineWriter, structlog
from criproxy.process.tasks import Tasks
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import Listener

if TYPE_CHECKING:
    from criproxy.nri.front import NriFront

log = structlog.get_logger("criproxy.daemon")


async def serve_http(
    stack: AsyncExitStack,
    listener: Listener,
    commands: Commands,
    proxies: "Sequence[Proxy | NriFront]",
    heartbeat: Heartbeat,
    log_writer: LineWriter,
    token_file: Path | None = None,
) -> None:
    """Serve metrics, health and the page on *listener* until *stack* closes it; the others are the sources.

    *token_file* has the token for the page.
    """
    problems, behind = commands.problems, commands.problems.behind
    controller, address = behind.controller, behind.endpoints.http

    async def ready() -> str | None:
        return (await problems.now()).not_ready

    gauges = Gauges(
        window_debt_bytes=lambda: sum(proxy.window_debt for proxy in proxies),
        oldest_held_s=lambda: max(proxy.oldest_held_s for proxy in proxies),
        bypass=lambda: problems.bypass.mode,
        dropped_log_lines=lambda: log_writer.dropped_lines,
    )

    def moment() -> Moment:
        return Moment(controller, problems.last, problems.last_call_s)

    metrics = registry(problems.stats, heartbeat, gauges, KNOWN_METHODS, moment)
    tasks, table = Tasks(log, controller.context.failures), commands.table()
    problems.page_access = access = Access(address, token_file, log)
    tasks.forever("read the token of the page", access.watch)  # not here: a file that hangs must not stop a start
    looks = Looks(controller, table, os.uname().nodename)
    streams = Streams(looks.take, looks.changed)
    tasks.forever("keep pages up to date", streams.run)
    page = Page(table, streams, access, await asyncio.to_thread(read_files))
    server = HttpServer(Sources(metrics.render, heartbeat.healthy, ready, problems.now), tasks, page.routes())
    stack.push_async_callback(server.stop)
    stack.callback(streams.close)
    await server.start(listener)
    _say(address, token_file)


def _say(address: Address | None, token_file: Path | None) -> None:
    """Log what is served, and what is open to other machines."""
    if address is not None and not address.is_local:
        text = "--http is open to every client that can reach this node: metrics and health need no authentication"
        page_is = "open to those who have the token" if token_file else "closed: there is no --http-token-file"
        log.warning(text, address=str(address), page=page_is)
    log.info("serving metrics and health, and the page", address=str(address))
