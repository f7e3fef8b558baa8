"""Metrics and health of the device plugin over HTTP, collected at each request. Imported only with ``--http``.

Labels are bounded: the classes and resources of the files, and the resources of MIG profiles.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from prometheus_client import Metric

from criproxy.deviceplugin.server.state import State, Status
from criproxy.process.http.address import Address
from criproxy.process.http.metrics import Registry, build_info, counter, gauge
from criproxy.process.http.server import HttpServer, Sources
from criproxy.process.program import Program
from criproxy.process.tasks import Tasks

_PREFIX = "criproxy_device_plugin"
_COUNTS = {
    "registered": ("registrations", "Registrations that the kubelet accepted."),
    "refused": ("registrations_refused", "Registrations that the kubelet refused or did not answer."),
    "replaced": (
        "replaced",
        "How often the kubelet ended the stream, for example because another plugin registered the resource.",
    ),
    "allocated": ("allocations", "Containers for which Allocate succeeded."),
    "allocations_refused": ("allocations_refused", "Allocate calls that were answered with an error."),
    "preferences_late": (
        "preferences_late",
        "How often choosing devices took too long; the kubelet got them in plain order.",
    ),
    "preferences_failed": (
        "preferences_failed",
        "How often choosing devices failed; the kubelet got them in plain order.",
    ),
}
"""Field of `state.Counts` → name without prefix and ``_total``, and help."""
_NOW = {
    "config_problem": "1 while the current configuration files are not in effect, else 0.",
    "inventory_problem": "1 while cards may be missing, for example because NVML does not work, else 0.",
    "events_problem": "1 while NVML events are expected but not received, else 0.",
    "labels_problem": "1 while the labels of the node cannot be written, else 0.",
    "daemon_reached": "1 if the daemon accepted the last report, else 0.",
    "pending_incidents": "Changes in the health of cards that the daemon has not received yet.",
    "pending_quota_incidents": "Quota incidents that the daemon has not received yet.",
}
"""Field of `Sample`, which is the name without prefix → help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The state of the device plugin at one moment."""

    status: list[Status] = field(default_factory=list)
    classes: Mapping[str, str] = field(default_factory=dict)
    """The class of each resource."""
    cards: Mapping[str, Mapping[bool, int]] = field(default_factory=dict)
    """By class: the number of healthy (True) and unhealthy cards."""
    reloads: int = 0
    reloads_failed: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """Number of internal failures of criproxy by kind."""
    config_problem: bool = False
    inventory_problem: bool = False
    nvml_problem: str = ""
    """Why NVML does not answer, and since when."""
    events_problem: bool = False
    labels_problem: bool = False
    daemon_reached: bool = False
    pending_incidents: int = 0
    usage_problems: Mapping[str, bool] = field(default_factory=dict)
    """By class, whether its use is unknown."""
    pending_quota_incidents: int = 0
    kills: int = 0
    kills_failed: int = 0


def registry(sample: Callable[[], Sample]) -> Registry:
    """Return the metrics of one device plugin; *sample* is called at each scrape."""
    return Registry(lambda: _families(sample()))


def _families(sample: Sample) -> Iterator[Metric]:
    yield from _resource_metrics(sample)
    words = ((True, "healthy"), (False, "unhealthy"))
    cards = {(kind, word): of.get(is_healthy, 0) for kind, of in sample.cards.items() for is_healthy, word in words}
    yield gauge(f"{_PREFIX}_cards", "Cards that the device plugin has found.", cards, "class", "health")
    for name, text in _NOW.items():
        yield gauge(f"{_PREFIX}_{name}", text, {(): float(getattr(sample, name))})
    text = "1 while the usage of a class of cards is unknown and its quotas are not checked, else 0."
    problems = {(kind,): is_one for kind, is_one in sample.usage_problems.items()}
    yield gauge(f"{_PREFIX}_usage_problem", text, problems, "class")
    text = "Attempts to kill a process because its container is over its quota, by result."
    kills = {("killed",): sample.kills, ("failed",): sample.kills_failed}
    yield counter(f"{_PREFIX}_kills", text, kills, "result")
    results = {("ok",): sample.reloads, ("failed",): sample.reloads_failed}
    yield counter(f"{_PREFIX}_reloads", "Reloads of changed files, by result.", results, "result")
    text = "Failures of the device plugin itself; its log has the cause."
    yield counter(f"{_PREFIX}_failures", text, {(): sum(sample.failures.values())})
    yield build_info()


def _resource_metrics(sample: Sample) -> Iterator[Metric]:
    labels = "class", "resource"
    found = {(sample.classes.get(each.resource, ""), each.resource): each for each in sample.status}
    text = "IDs of a resource that the kubelet has received; each replica of a card counts."
    yield gauge(f"{_PREFIX}_advertised", text, {key: each.devices for key, each in found.items()}, *labels)
    text = "IDs of a resource that are healthy."
    yield gauge(f"{_PREFIX}_healthy", text, {key: each.healthy for key, each in found.items()}, *labels)
    text = "1 while the kubelet is watching the list of devices, else 0."
    registered = {key: float(each.state is State.REGISTERED) for key, each in found.items()}
    yield gauge(f"{_PREFIX}_registered", text, registered, *labels)
    for attribute, (name, text) in _COUNTS.items():
        counts = {key: getattr(each.counts, attribute) for key, each in found.items()}
        yield counter(f"{_PREFIX}_{name}", text, counts, *labels)


async def serve_http(stack: AsyncExitStack, address: Address, sample: Callable[[], Sample], program: Program) -> None:
    """Serve on *address* until *stack* is closed.

    Raises:
        CriproxyError: The address cannot be used.
    """
    listener, log = address.listen(), program.tasks.log
    stack.callback(listener.close)

    async def ready() -> str | None:
        return not_ready(sample())

    server = HttpServer(
        Sources(registry(sample).render, program.heartbeat.healthy, ready), Tasks(log, program.failures)
    )
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
