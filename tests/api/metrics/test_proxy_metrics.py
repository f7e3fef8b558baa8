"""What Prometheus gets to read."""

from collections import Counter

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from criproxy.api.metrics.controller_metrics import ControllerValues
from criproxy.api.metrics.proxy_metrics import Gauges, Metrics
from criproxy.node.bypass import BypassMode
from criproxy.node.counters import Counters
from criproxy.process.heartbeat import Heartbeat
from criproxy.wire.calls import Call, Outcome, Rule
from criproxy.wire.stats import Stats

VERSION = "/runtime.v1.RuntimeService/Version"
CREATE = "/runtime.v1.RuntimeService/CreateContainer"
KNOWN = frozenset([VERSION, CREATE])
GAUGES = Gauges(
    window_debt_bytes=lambda: 17,
    oldest_held_s=lambda: 2.5,
    bypass=lambda: BypassMode.ORDERED,
    dropped_log_lines=lambda: 4,
)
COUNTERS = Counters(
    decisions=Counter(container_creating=3),
    refusals=Counter(RESOURCE_EXHAUSTED=2),
    resizes_refused=7,
    promotions=2,
    policy_failures=5,
    policy_faults=6,
    updates_sent=9,
    updates_failed=2,
    updates_lost=1,
    updates_in_flight=4,
    drift_found=2,
    drift_repaired=1,
    exits=Counter(events=7),
    unknown_outcomes=2,
    store_failures=3,
    resyncs=2,
    resync_failures=1,
    adoptions=1,
    device_evidence=Counter({("podresources", "answered"): 5, ("checkpoint", "failed"): 1}),
    device_allocations=Counter({("nvidia", "podresources"): 2}),
    devices=Counter({("nvidia", "hidden"): 3, ("", "exempt"): 1}),
    device_incidents=Counter({("nvidia", "stop"): 2}),
    device_stops=Counter(nvidia=4),
    quota_incidents=Counter({("nvidia", "cores", "observe"): 6}),
    quota_stops=Counter({("nvidia", "memory"): 3}),
    device_creates_refused=Counter(nvidia=7),
    reloads_ok=1,
)
for took_s in (0.001, 0.001, 0.01, 0.488):
    COUNTERS.decision_times.add(took_s)
CONTROLLER = ControllerValues(
    counters=COUNTERS,
    fallbacks={"shared": 1},
    failures={"call": 1, "watcher": 0},
    unpromoted=1,
    undersized=1,
    misplaced=3,
    misplaced_age_s=1.5,
    containers={"running": 8, "unknown": 1},
    cpus={"exclusive": {0: 2, 1: 0}, "shared": {0: 6, 1: 8}, "free": {0: 5, 1: 8}},
    store_current=False,
    store_failing_s=30.0,
    resync_age_s=None,
    device_cards={"nvidia": 8},
    device_cards_given={"nvidia": 2},
    device_ids={("nvidia", "nvidia.com/gpu.shared"): (35, 5)},
    device_ids_given={("nvidia", "nvidia.com/gpu.shared"): 3},
    device_plugin_up=True,
    unhealthy_cards={"nvidia": 1},
    over_quota={("nvidia", "memory"): 2},
    config_problem=True,
    released=False,
    ready=True,
    problems={"store": 1},
    runtime_up=True,
    kubelet_last_call_s=1_795_000_100.5,
    policy_file=("static", "/etc/p.yaml", "0123456789ab"),
    config_loaded_s=1_795_000_000.0,
    try_remaining_s=590.5,
)


def watch(_call: Call, _outcome: Outcome) -> None:
    """A handler that makes a rule."""


def counted() -> Stats:
    """Some calls, bytes and failures."""
    stats = Stats({CREATE: Rule(done=watch)})
    stats.entry(VERSION.encode()).calls = 3
    stats.entry(CREATE.encode()).calls = 2
    stats.entry(CREATE.encode()).bypassed = 1
    stats.entry(CREATE.encode()).held.add(0.003)
    stats.entry(CREATE.encode()).held.add(99.0)
    for number in range(400):
        stats.entry(f"/made.up/Method{number}".encode()).calls = 1
    stats.bytes_from_kubelet, stats.bytes_from_runtime = 100, 200
    stats.refused, stats.connections_open, stats.connections_total = 5, 1, 9
    return stats


def samples(*stats: Stats, accept: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Everything that is shown of *stats*, by name and labels."""
    body, _ = Metrics(stats, Heartbeat(lambda: None), GAUGES, KNOWN, lambda: CONTROLLER).render(accept)
    parse = openmetrics.text_string_to_metric_families if accept else text_string_to_metric_families
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }


def test_calls_are_counted_by_method_and_way() -> None:
    """Methods of CRI have their own label; all that a client made up is one series, however much it made up."""
    found = {key[1]: value for key, value in samples(counted()).items() if key[0] == "criproxy_calls_total"}

    expected = {
        (("method", VERSION), ("way", "pass")): 3,
        (("method", CREATE), ("way", "watch")): 2,
        (("method", CREATE), ("way", "bypass")): 1,
        (("method", "other"), ("way", "pass")): found[(("method", "other"), ("way", "pass"))],
    }
    assert expected == found
    assert found[(("method", "other"), ("way", "pass"))] >= 254


def test_device_plugin() -> None:
    """What it offers and containers have by resource, and what is unhealthy by class: labels of configured names."""
    found = samples(counted())
    kind, resource = ("device_class", "nvidia"), ("resource", "nvidia.com/gpu.shared")

    assert found["criproxy_device_ids", (kind, ("health", "healthy"), resource)] == 35
    assert found["criproxy_device_ids", (kind, ("health", "unhealthy"), resource)] == 5
    assert found["criproxy_device_ids_given", (kind, resource)] == 3
    assert found["criproxy_device_plugin_up", ()] == 1
    assert found["criproxy_device_unhealthy_cards", (kind,)] == 1
    assert found["criproxy_device_incidents_total", (("action", "stop"), kind)] == 2
    assert found["criproxy_device_stops_total", (kind,)] == 4
    assert found["criproxy_device_creates_refused_total", (kind,)] == 7


def test_quotas() -> None:
    """Who is over a quota now, was found over it, and was stopped for it, by class and quantity."""
    found = samples(counted())
    kind, memory = ("device_class", "nvidia"), ("quantity", "memory")
    observed = (("action", "observe"), kind, ("quantity", "cores"))

    assert found["criproxy_device_over_quota", (kind, memory)] == 2
    assert found["criproxy_device_quota_incidents_total", observed] == 6
    assert found["criproxy_device_quota_stops_total", (kind, memory)] == 3


def test_calls_from_before_another_table_still_count() -> None:
    """A counter never goes back, whatever is done to a method's calls by now."""
    stats = counted()
    stats.use({})
    stats.entry(CREATE.encode()).calls = 7

    found = samples(stats)

    assert found["criproxy_calls_total", (("method", CREATE), ("way", "watch"))] == 2
    assert found["criproxy_calls_total", (("method", CREATE), ("way", "pass"))] == 7
    assert found["criproxy_calls_total", (("method", CREATE), ("way", "bypass"))] == 1
    assert found["criproxy_held_seconds_count", (("method", CREATE),)] == 2


def test_held_times_are_a_histogram() -> None:
    """Buckets are cumulative, and what exceeds all of them counts as well."""
    found = samples(counted())
    method = ("method", CREATE)

    assert found["criproxy_held_seconds_bucket", (("le", "0.0025"), method)] == 0
    assert found["criproxy_held_seconds_bucket", (("le", "0.005"), method)] == 1
    assert found["criproxy_held_seconds_bucket", (("le", "30.0"), method)] == 1
    assert found["criproxy_held_seconds_bucket", (("le", "+Inf"), method)] == 2
    assert found["criproxy_held_seconds_count", (method,)] == 2
    assert found["criproxy_held_seconds_sum", (method,)] == pytest.approx(99.003)


def test_everything_else_has_its_name() -> None:
    """Names are those that dashboards use."""
    found = samples(counted())

    assert found["criproxy_bytes_total", (("direction", "to_runtime"),)] == 100
    assert found["criproxy_bytes_total", (("direction", "to_kubelet"),)] == 200
    assert found["criproxy_refused_calls_total", ()] == 5
    assert found["criproxy_connections", ()] == 1
    assert found["criproxy_accepted_connections_total", ()] == 9
    assert found["criproxy_window_debt_bytes", ()] == 17
    assert found["criproxy_bypass", (("mode", "ordered"),)] == 1
    assert found["criproxy_bypass", (("mode", "automatic"),)] == 0
    assert found["criproxy_oldest_held_call_seconds", ()] == 2.5
    assert found["criproxy_dropped_log_lines_total", ()] == 4
    assert found["criproxy_policy_faults_total", ()] == 6
    assert found["criproxy_loop_lag_seconds_count", ()] == 0
    assert found["criproxy_handler_errors_total", ()] == 0


def test_the_controller_has_its_metrics() -> None:
    """Counts by kind, values of the moment, CPUs by NUMA node; what is not known is left out."""
    found = samples(counted())

    assert found["criproxy_decisions_total", (("event", "container_creating"),)] == 3
    assert found["criproxy_refusals_total", (("code", "RESOURCE_EXHAUSTED"),)] == 2
    assert found["criproxy_updates_total", (("outcome", "lost"),)] == 1
    assert found["criproxy_policy_failures_total", ()] == 5
    assert found["criproxy_containers", (("state", "running"),)] == 8
    assert found["criproxy_free_cpus", (("numa_node", "0"),)] == 5
    assert found["criproxy_shared_cpus", (("numa_node", "1"),)] == 8
    assert found["criproxy_misplaced_age_seconds", ()] == 1.5
    assert found["criproxy_store_current", ()] == 0
    assert found["criproxy_config_problem", ()] == 1
    labels = (("file", "/etc/p.yaml"), ("hash", "0123456789ab"), ("policy", "static"))
    assert found["criproxy_config_info", labels] == 1
    assert found["criproxy_config_loaded_timestamp_seconds", ()] == 1_795_000_000
    assert found["criproxy_config_try_remaining_seconds", ()] == 590.5
    assert found["criproxy_config_tries_ended_total", (("how", "time"),)] == 0
    assert found["criproxy_exits_total", (("seen", "lists"),)] == 0
    assert found["criproxy_device_evidence_total", (("outcome", "late"), ("source", "podresources"))] == 0
    assert found["criproxy_device_creates_total", (("device_class", "all"), ("finding", "exempt"))] == 1
    assert found["criproxy_unknown_containers", ()] == 1
    assert found["criproxy_inquiries_total", ()] == 2
    assert found["criproxy_decision_seconds_bucket", (("le", "0.01"),)] == 3
    assert found["criproxy_decision_seconds_bucket", (("le", "+Inf"),)] == 4
    assert ("criproxy_resync_age_seconds", ()) not in found


def test_two_proxies_are_added_up() -> None:
    """The image socket's calls count with the others."""
    found = samples(counted(), counted())

    assert found["criproxy_calls_total", (("method", VERSION), ("way", "pass"))] == 6
    assert found["criproxy_held_seconds_count", (("method", CREATE),)] == 4


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=1.0.0", "application/openmetrics-text"])
def test_openmetrics_is_spoken(accept: str) -> None:
    """The strict format is valid, too."""
    assert samples(counted(), accept=accept)["criproxy_bypass", (("mode", "ordered"),)] == 1


@pytest.mark.parametrize("accept", ["", "*/*", "nonsense;;;,", "text/plain; version=9; escaping=nonsense"])
def test_a_strange_accept_header_gets_text(accept: str) -> None:
    """Whoever asks is answered."""
    body, content_type = Metrics([counted()], Heartbeat(lambda: None), GAUGES, KNOWN, lambda: CONTROLLER).render(accept)

    assert b'criproxy_bypass{mode="ordered"} 1.0' in body
    assert content_type.startswith("text/plain")
