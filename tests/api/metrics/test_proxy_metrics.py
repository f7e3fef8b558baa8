"""What Prometheus gets to read."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from criproxy.api.metrics.moment import Moment
from criproxy.api.metrics.proxy_metrics import Gauges, registry
from criproxy.node.bypass import BypassMode
from criproxy.process.heartbeat import Heartbeat
from criproxy.process.http.metrics import Registry
from criproxy.wire.calls import Call, Outcome, Rule
from criproxy.wire.stats import Stats
from tests.node.world import World

VERSION = "/runtime.v1.RuntimeService/Version"
CREATE = "/runtime.v1.RuntimeService/CreateContainer"
KNOWN = frozenset([VERSION, CREATE])
GAUGES = Gauges(
    window_debt_bytes=lambda: 17,
    oldest_held_s=lambda: 2.5,
    bypass=lambda: BypassMode.ORDERED,
    dropped_log_lines=lambda: 4,
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


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def metrics(tmp_path: Path) -> AsyncIterator[Callable[..., Registry]]:
    """Return what makes the metrics of proxies beside an idle controller."""
    async with World(tmp_path) as world:
        heartbeat = Heartbeat(lambda: None, print)
        yield lambda *stats: registry(stats, heartbeat, GAUGES, KNOWN, lambda: Moment(world.controller))


def samples(metrics: Registry, accept: str = "") -> Samples:
    """Everything that is shown, by name and labels."""
    body, _ = metrics.render(accept)
    parse = openmetrics.text_string_to_metric_families if accept else text_string_to_metric_families
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }


async def test_calls_are_counted_by_method_and_way(metrics: Callable[..., Registry]) -> None:
    """Methods of CRI have their own label; all that a client made up is one series, however much it made up."""
    found = {key[1]: value for key, value in samples(metrics(counted())).items() if key[0] == "criproxy_calls_total"}

    expected = {
        (("method", VERSION), ("way", "pass")): 3,
        (("method", CREATE), ("way", "watch")): 2,
        (("method", CREATE), ("way", "bypass")): 1,
        (("method", "other"), ("way", "pass")): found[(("method", "other"), ("way", "pass"))],
    }
    assert expected == found
    assert found[(("method", "other"), ("way", "pass"))] >= 254


async def test_calls_from_before_another_table_still_count(metrics: Callable[..., Registry]) -> None:
    """A counter never goes back, whatever is done to a method's calls by now."""
    stats = counted()
    stats.use({})
    stats.entry(CREATE.encode()).calls = 7

    found = samples(metrics(stats))

    assert found["criproxy_calls_total", (("method", CREATE), ("way", "watch"))] == 2
    assert found["criproxy_calls_total", (("method", CREATE), ("way", "pass"))] == 7
    assert found["criproxy_calls_total", (("method", CREATE), ("way", "bypass"))] == 1
    assert found["criproxy_held_seconds_count", (("method", CREATE),)] == 2


async def test_held_times_are_a_histogram(metrics: Callable[..., Registry]) -> None:
    """Buckets are cumulative, and what exceeds all of them counts as well."""
    found = samples(metrics(counted()))
    method = ("method", CREATE)

    assert found["criproxy_held_seconds_bucket", (("le", "0.0025"), method)] == 0
    assert found["criproxy_held_seconds_bucket", (("le", "0.005"), method)] == 1
    assert found["criproxy_held_seconds_bucket", (("le", "30.0"), method)] == 1
    assert found["criproxy_held_seconds_bucket", (("le", "+Inf"), method)] == 2
    assert found["criproxy_held_seconds_count", (method,)] == 2
    assert found["criproxy_held_seconds_sum", (method,)] == pytest.approx(99.003)


async def test_everything_else_has_its_name(metrics: Callable[..., Registry]) -> None:
    """Names are those that dashboards use."""
    found = samples(metrics(counted()))

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
    assert found["criproxy_loop_lag_seconds_count", ()] == 0
    assert found["criproxy_handler_errors_total", ()] == 0


async def test_two_proxies_are_added_up(metrics: Callable[..., Registry]) -> None:
    """The image socket's calls count with the others."""
    found = samples(metrics(counted(), counted()))

    assert found["criproxy_calls_total", (("method", VERSION), ("way", "pass"))] == 6
    assert found["criproxy_held_seconds_count", (("method", CREATE),)] == 4


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=1.0.0", "application/openmetrics-text"])
async def test_openmetrics_is_spoken(metrics: Callable[..., Registry], accept: str) -> None:
    """The strict format is valid, too."""
    assert samples(metrics(counted()), accept)["criproxy_bypass", (("mode", "ordered"),)] == 1


@pytest.mark.parametrize("accept", ["", "*/*", "nonsense;;;,", "text/plain; version=9; escaping=nonsense"])
async def test_a_strange_accept_header_gets_text(metrics: Callable[..., Registry], accept: str) -> None:
    """Whoever asks is answered."""
    body, content_type = metrics(counted()).render(accept)

    assert b'criproxy_bypass{mode="ordered"} 1.0' in body
    assert content_type.startswith("text/plain")
