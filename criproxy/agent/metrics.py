"""The metrics and the health of the agent, for ``--http``. docs/monitoring.md documents them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric

from criproxy.process.http.metrics import Registry, Values, build_info, counter, gauge

PHASES = ("Applied", "Trying", "Waiting", "RolledBack", "Refused")
"""Of `RolloutState`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the metrics show, at one moment; the defaults are those before anything has happened."""

    connected: bool = False
    """Whether the daemon answers."""
    view_age_s: float = 0.0
    """How old what the agent knows of the node is; 0 while the daemon answers."""
    requests: Values = field(default_factory=dict)
    """By verb, resource and status."""
    watch_restarts: Values = field(default_factory=dict)
    """By resource and reason."""
    silent_s: float | None = None
    """Since the API server has last sent something; None: it never has."""
    watches: Mapping[str, bool] = field(default_factory=dict)
    """By resource that the agent follows: whether it knows the present objects."""
    phase: str = ""
    """How far the NodePolicy is that selects this node; empty: none does, or that is not known yet."""
    troubles: int = 0
    """Parts that cannot do their work now."""
    failures: int = 0
    """Of the agent itself, since its start."""


def registry(sample: Callable[[], Sample]) -> Registry:
    """Return the metrics of one agent; *sample* is called at each scrape."""
    return Registry(lambda: _families(sample()))


def _families(sample: Sample) -> Iterator[Metric]:
    text = "1 while the daemon answers the agent, else 0."
    yield gauge("criproxy_agent_daemon_connected", text, {(): float(sample.connected)})
    text = "Seconds since the daemon has answered last; 0 while it answers."
    yield gauge("criproxy_agent_view_age_seconds", text, {(): sample.view_age_s})
    text = "Requests to the API server, by verb, resource and status; unreachable without an answer."
    yield counter("criproxy_agent_requests", text, sample.requests, "verb", "resource", "status")
    text = "Watches of the API server that had to begin again, by resource and reason."
    yield counter("criproxy_agent_watch_restarts", text, sample.watch_restarts, "resource", "reason")
    text = "Seconds since the API server has last sent something."
    silent = {} if sample.silent_s is None else {(): sample.silent_s}
    yield gauge("criproxy_agent_api_silent_seconds", text, silent)
    text = "1 while the objects of a resource that the agent follows are current, else 0."
    current = {(resource,): float(is_current) for resource, is_current in sample.watches.items()}
    yield gauge("criproxy_agent_watch_current", text, current, "resource")
    text = "1 for how far the NodePolicy is that selects this node, else 0."
    phases = {(phase,): float(phase == sample.phase) for phase in PHASES}
    yield gauge("criproxy_agent_rollout_phase", text, phases, "phase")
    text = "Parts of the agent that cannot do their work now; criproxy status has the reasons."
    yield gauge("criproxy_agent_troubles", text, {(): sample.troubles})
    text = "Failures of the agent itself; its log has the cause."
    yield counter("criproxy_agent_failures", text, {(): sample.failures})
    yield build_info()
