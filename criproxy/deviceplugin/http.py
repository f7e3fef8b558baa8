"""Metrics and health of the device plugin over HTTP. Imported only with ``--http``."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from criproxy.deviceplugin.metrics import PluginMetrics, Sample
from criproxy.deviceplugin.server.settings import State
from criproxy.process.failures import Failures
from criproxy.process.heartbeat import STALE_S, Heartbeat
from criproxy.process.http.address import Address
from criproxy.process.http.http import HttpServer, Sources
from criproxy.process.logger import Log
from criproxy.process.tasks import Tasks


async def serve_http(
    stack: AsyncExitStack,
    address: Address,
    sample: Callable[[], Sample],
    heartbeat: Heartbeat,
    log: Log,
    failures: Failures,
) -> None:
    """Serve on *address* until *stack* is closed.

    Raises:
        CriproxyError: The address cannot be used.
    """
    listener = address.listen()
    stack.callback(listener.close)

    async def healthy() -> str | None:
        overdue_s = heartbeat.overdue_s()
        return None if overdue_s < STALE_S else f"the event loop is {overdue_s:.1f} s late"

    async def ready() -> str | None:
        return not_ready(sample())

    server = HttpServer(Sources(PluginMetrics(sample).render, healthy, ready), Tasks(log, failures))
    stack.push_async_callback(server.stop)
    await server.start(listener)
    if not address.is_local:
        text = "--http is open to every client that can reach this node: there is no authentication"
        log.warning(text, address=str(address))
    log.info("serving metrics and health", address=str(address))


def not_ready(sample: Sample) -> str | None:
    """Return why NVML does not work, or a resource that the kubelet has not registered and why; None if all is well."""
    if sample.nvml_problem:
        return sample.nvml_problem
    for status in sample.status:
        if status.state is not State.REGISTERED:
            return f"{status.resource}: {status.text or status.state.value}"
    return None
