"""Metrics and health over HTTP; a thread imports this module during the first calls, which takes 0.1 s."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from criproxy.api.measures import measure
from criproxy.api.signals import measure_use
from criproxy.cri.methods import KNOWN_METHODS
from criproxy.daemon.behind import Behind, probe
from criproxy.observe.bypass import Bypass
from criproxy.observe.heartbeat import STALE_S, Heartbeat
from criproxy.observe.http import HttpServer, Sources
from criproxy.observe.log import structlog
from criproxy.observe.proxy_metrics import Gauges, Metrics
from criproxy.observe.tasks import Tasks
from criproxy.observe.writer import LineWriter
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import Listener

log = structlog.get_logger("criproxy.daemon")


async def serve_http(
    stack: AsyncExitStack,
    listener: Listener,
    behind: Behind,
    proxies: Sequence[Proxy],
    heartbeat: Heartbeat,
    bypass: Bypass,
    log_writer: LineWriter,
) -> None:
    """Serve metrics and health on *listener* until *stack* closes it; the other arguments are their sources."""
    controller, address = behind.controller, behind.endpoints.http

    async def healthy() -> str | None:
        overdue_s = heartbeat.overdue_s()
        return None if overdue_s < STALE_S else f"the event loop is {overdue_s:.1f} s late"

    async def ready() -> str | None:
        return await probe(behind.endpoints) or controller.problem or controller.devices.problem

    gauges = Gauges(
        window_debt_bytes=lambda: sum(proxy.window_debt for proxy in proxies),
        oldest_held_s=lambda: max(proxy.oldest_held_s for proxy in proxies),
        bypass=lambda: bypass.mode,
        dropped_log_lines=lambda: log_writer.dropped_lines,
    )
    use = partial(measure_use, controller)
    stats = [proxy.stats for proxy in proxies]
    metrics = Metrics(stats, heartbeat, gauges, KNOWN_METHODS, partial(measure, controller), use)
    server = HttpServer(Sources(metrics.render, healthy, ready), Tasks(log, controller.context.failures))
    stack.push_async_callback(server.stop)
    await server.start(listener)
    if address is not None and not address.is_local:
        text = "--http is open to every client that can reach this node: there is no authentication"
        log.warning(text, address=str(address))
    log.info("serving metrics and health", address=str(address))
