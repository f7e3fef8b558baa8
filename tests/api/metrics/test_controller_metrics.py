"""The metrics of a controller as Prometheus reads them."""

import re
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from criproxy.api.metrics import controller_metrics, device_metrics
from criproxy.api.metrics.moment import Moment
from criproxy.api.metrics.proxy_metrics import of_controller
from criproxy.api.views.status import totals
from criproxy.node.controller import Controller
from criproxy.process.http.metrics import Registry
from tests.node.world import World, owner, sharer

COUNTED = {
    "decisions": (Counter(container_creating=3), {(("event", "container_creating"),): 3}),
    "refusals": (Counter(RESOURCE_EXHAUSTED=2), {(("code", "RESOURCE_EXHAUSTED"),): 2, (("code", "UNAVAILABLE"),): 0}),
    "tries_ended": (
        Counter(time=1),
        {(("how", "time"),): 1, (("how", "kept"),): 0, (("how", "file"),): 0, (("how", "asked"),): 0},
    ),
    "exits": (Counter(events=7), {(("seen", "events"),): 7, (("seen", "lists"),): 0, (("seen", "cgroups"),): 0}),
    "device_stops": (Counter(nvidia=4), {(("device_class", "nvidia"),): 4}),
    "device_creates_refused": (Counter(nvidia=7), {(("device_class", "nvidia"),): 7}),
    "device_incidents": (Counter({("nvidia", "stop"): 2}), {(("action", "stop"), ("device_class", "nvidia")): 2}),
    "devices": (Counter({("", "exempt"): 1}), {(("device_class", "all"), ("finding", "exempt")): 1}),
    "quota_incidents": (
        Counter({("nvidia", "cores", "observe"): 6}),
        {(("action", "observe"), ("device_class", "nvidia"), ("quantity", "cores")): 6},
    ),
    "quota_stops": (
        Counter({("nvidia", "memory"): 3}),
        {(("device_class", "nvidia"), ("quantity", "memory")): 3},
    ),
    "resizes_refused": (7, {(): 7}),
    "policy_failures": (5, {(): 5}),
    "policy_faults": (6, {(): 6}),
    "store_failures": (3, {(): 3}),
    "inquiries": (2, {(): 2}),
}
"""By field of `Counters`: what is counted, and the samples of its metric."""
NAMES = {
    "tries_ended": "config_tries_ended",
    "devices": "device_creates",
    "quota_incidents": "device_quota_incidents",
    "quota_stops": "device_quota_stops",
}
"""By field of `Counters`, the name of the metric if it is another one."""


def samples(controller: Controller, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The samples with this name, which has no prefix, by their labels."""
    body, _ = Registry(lambda: of_controller(Moment(controller))).render("")
    families = text_string_to_metric_families(body.decode())
    found = [sample for family in families for sample in family.samples if sample.name == f"criproxy_{name}"]
    return {tuple(sorted(sample.labels.items())): sample.value for sample in found}


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """Return a node with a container that has two exclusive CPUs, and one that shares."""
    async with World(tmp_path) as world:
        await world.run(owner("owner", 2))
        await world.run(sharer("sharer"))
        await world.controller.idle()
        return world


async def test_what_is_counted_since_the_start(world: World) -> None:
    """Counts have their labels; labels that can come start with 0."""
    for field, (counted, _) in COUNTED.items():
        setattr(world.counters, field, counted)

    for field, (_, expected) in COUNTED.items():
        assert samples(world.controller, f"{NAMES.get(field, field)}_total") == expected, field


async def test_updates_drift_and_reloads_by_outcome(world: World) -> None:
    """Two or three counts are one metric."""
    counters = world.counters
    counters.updates_sent, counters.updates_failed, counters.updates_lost = 9, 2, 1
    counters.drift_found, counters.drift_repaired = 2, 1
    counters.reloads_ok, counters.reloads_failed = 1, 3

    expected = {
        "updates": {"sent": 9, "failed": 2, "lost": 1},
        "drift": {"found": 2, "repaired": 1},
        "config_reloads": {"ok": 1, "failed": 3},
    }
    for name, counts in expected.items():
        assert {key[0][1]: value for key, value in samples(world.controller, f"{name}_total").items()} == counts


async def test_the_node_at_this_moment(world: World) -> None:
    """Containers by state, CPUs by NUMA node; two of four CPUs are exclusive; what is unknown has no sample."""
    assert samples(world.controller, "containers")[("state", "running"),] == 2
    assert samples(world.controller, "exclusive_cpus") == {(("numa_node", "0"),): 2}
    assert samples(world.controller, "shared_cpus") == {(("numa_node", "0"),): 2}
    assert samples(world.controller, "store_current") == {(): 1}
    assert samples(world.controller, "unknown_containers") == {(): 0}
    assert samples(world.controller, "config_info") == {(("file", ""), ("hash", ""), ("policy", "")): 1}
    for unknown in ("kubelet_last_call_timestamp_seconds", "device_plugin_up"):
        assert samples(world.controller, unknown) == {}


async def test_a_container_whose_update_is_held_is_misplaced(tmp_path: Path) -> None:
    """As `status` says; how long is about updates, of which none is tried."""
    async with World(tmp_path) as world:
        await world.run(sharer("sharer"))
        await world.rested()
        world.controller.reconciler.holds.add("a test")
        await world.created(owner("owner", 2))

        assert samples(world.controller, "misplaced_containers") == {(): 1}
        assert samples(world.controller, "misplaced_age_seconds") == {(): 0}
        assert totals(world.controller.node)["not_in_place"] == 1


async def test_the_times_of_decisions_are_a_histogram(world: World) -> None:
    """Buckets are cumulative, and what exceeds all of them counts as well."""
    before = samples(world.controller, "decision_seconds_bucket")
    for took_s in (0.001, 0.001, 0.01, 0.488):
        world.counters.decision_times.add(took_s)
    after = samples(world.controller, "decision_seconds_bucket")

    assert after[("le", "0.01"),] - before[("le", "0.01"),] == 3
    assert after[("le", "+Inf"),] - before[("le", "+Inf"),] == 4


def test_every_metric_has_a_name_and_a_sentence() -> None:
    """Names are those of Prometheus, and help texts are one sentence on one line."""
    for name, metric in (controller_metrics.METRICS | device_metrics.METRICS).items():
        assert re.fullmatch(r"[a-z][a-z_]+", name)
        assert re.fullmatch(r"[A-Z0-9][^\n]*\.", metric.text), name
