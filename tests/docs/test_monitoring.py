"""Documentation, alerts and dashboard name the metrics that there are, and explain all of them."""

import json
import re
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from criproxy.agent import metrics as agent_metrics
from criproxy.api.metrics import proxy_metrics
from criproxy.api.metrics.moment import Moment
from criproxy.cri.methods import KNOWN_METHODS
from criproxy.cri.runtime import RuntimeClient
from criproxy.deviceplugin import metrics as plugin_metrics
from criproxy.deviceplugin.metrics import Sample
from criproxy.deviceplugin.server.state import State, Status
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.node.bypass import BypassMode
from criproxy.node.controller import Controller
from criproxy.node.settings import Settings
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.process.heartbeat import Heartbeat
from criproxy.process.http.metrics import Registry
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from criproxy.wire.stats import Stats
from tests.conftest import ROOT
from tests.node.world import RecordingLog, World, owner, sharer
from tests.tables import anchor

DOCS = ROOT / "docs"
PAGE = (DOCS / "monitoring.md").read_text()
ALERTS = yaml.safe_load((DOCS / "monitoring/alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((DOCS / "monitoring/dashboard.json").read_text())
EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())),
]
NAME = re.compile(r"\b(?:criproxy|process)_[a-z][a-z_]*")
LATE = {
    "criproxy_resync_age_seconds",
    "criproxy_decisions_total",
    "criproxy_device_creates_total",
    "criproxy_device_cards",
    "criproxy_device_cards_given",
    "criproxy_device_creates_refused_total",
    "criproxy_device_over_quota",
    "criproxy_device_quota_incidents_total",
    "criproxy_device_quota_stops_total",
    "criproxy_device_plugin_up",
    "criproxy_usage_watcher_up",
    "criproxy_node_cpu_utilization_ratio",
    "criproxy_node_memory_utilization_ratio",
    *(f"criproxy_vgpu_{name}" for name in ("memory_used_bytes", "memory_limit_bytes", "sm_ratio", "sm_limit_ratio")),
    "criproxy_vgpu_free",
}
"""What has no series before it first happened, and needs none, or has one for each class of cards that is there."""
PLUGIN = Sample(
    status=[Status(resource="nvidia.com/gpu", state=State.STARTING)],
    cards={"nvidia": {True: 1}},
    usage_problems={"nvidia": False},
)
"""A device plugin before anything has happened."""
SCRAPE_LIMIT_S = 0.010
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def registry(controller: Controller) -> Registry:
    """The metrics of a daemon with *controller*."""
    gauges = proxy_metrics.Gauges(
        window_debt_bytes=lambda: 0,
        oldest_held_s=lambda: 0.0,
        bypass=lambda: BypassMode.OFF,
        dropped_log_lines=lambda: 0,
    )
    stats = Stats(controller.table())
    for entry in stats.entries.values():
        entry.calls = 1
        entry.held.add(0.001)
    return proxy_metrics.registry(
        [stats], Heartbeat(lambda: None, print), gauges, KNOWN_METHODS, lambda: Moment(controller, last_call_s=1.0)
    )


@pytest.fixture
async def series(tmp_path: Path) -> set[str]:
    """Return the names of all time series of a real scrape, of the daemon and of the device plugin."""
    async with World(tmp_path) as world:
        await world.run(owner("owner", 2))
        await world.run(sharer("sharer"))
        body, _ = registry(world.controller).render("")
    plugin, _ = plugin_metrics.registry(Sample).render("")
    agent, _ = agent_metrics.registry(agent_metrics.Sample).render("")
    return {name for text in (body, plugin, agent) for name in _series(text.decode())}


def _series(text: str) -> Iterator[str]:
    """All names that can come, also of families that have no sample yet."""
    for family in text_string_to_metric_families(text):
        for suffix in SUFFIXES.get(family.type, ("",)):
            yield family.name + suffix


async def test_every_name_in_use_exists(series: set[str]) -> None:
    """Alerts, dashboard and page name no metric that is not served."""
    used = {name for expression in EXPRESSIONS for name in NAME.findall(expression)}
    variable = DASHBOARD["templating"]["list"][1]["query"]["query"]
    used |= set(NAME.findall(variable))
    page = {name for name in NAME.findall(PAGE) if not {name, f"{name}_bucket"} & series}

    assert len(used) > 25
    assert used <= series
    assert page == set()


async def test_every_metric_is_explained(series: set[str]) -> None:
    """Each has its row on the page."""
    ours = {re.sub("_(bucket|count|sum)$", "", name) for name in series if name.startswith("criproxy_")}

    assert len(ours) > 40
    assert ours - set(NAME.findall(PAGE)) == set()


async def test_all_that_is_asked_for_is_there_before_it_happens(tmp_path: Path) -> None:
    """A label that is mistyped never matches, and a counter that appears with its first event shows no increase."""
    async with World(tmp_path) as world:
        body, _ = registry(world.controller).render("")
    plugin, _ = plugin_metrics.registry(lambda: PLUGIN).render("")
    agent, _ = agent_metrics.registry(agent_metrics.Sample).render("")
    families = (family for text in (body, plugin, agent) for family in text_string_to_metric_families(text.decode()))
    samples = [(sample.name, sample.labels) for family in families for sample in family.samples]
    for expression in EXPRESSIONS:
        for name, selector in re.findall(r"(criproxy_[a-z_]+)(?:\{([^}]*)\})?", expression):
            asked = [one for one in re.findall(r'(\w+)=~?"([^"]*)"', selector) if one[0] != "instance"]
            for values in product(*([(label, value) for value in words.split("|")] for label, words in asked)):
                found = [
                    labels for known, labels in samples if known == name and dict(values).items() <= labels.items()
                ]
                assert found or name in LATE, f"{name} {values} of {expression!r}"


def test_alerts_have_the_shape_of_a_rule_file() -> None:
    """Prometheus takes them: names once, durations, severities, texts for people."""
    assert set(ALERTS) == {"groups"}
    assert all(set(group) == {"name", "rules"} for group in ALERTS["groups"])
    assert len({group["name"] for group in ALERTS["groups"]}) == len(ALERTS["groups"])
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Criproxy[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        assert all(len(rule["annotations"][name]) > 20 for name in ("summary", "description"))


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_leads_to_what_to_do(rule: dict[str, Any]) -> None:
    """Its runbook is a section of a page."""
    page, _, section = rule["annotations"]["runbook"].partition("#")
    assert section in map(anchor, re.findall(r"(?m)^#+ (.*)$", (DOCS.parent / page).read_text()))


def test_the_dashboard_has_the_shape_that_grafana_imports() -> None:
    """Panels have ids of their own, do not overlap, and ask the data source that one chooses."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    for panel in panels:
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
        assert panel["type"] == "row" or panel["targets"]


class Full(Store):
    """A store that remembers a node with a thousand containers."""

    def load(self, topology: Topology) -> Node:
        """Owners and sharers, as the policy places them."""
        policy, node = StaticPolicy(StaticOptions()), Node(topology)
        node = step(node, PodCreated(Pod(key="s")), policy).node
        for number in range(1000):
            container = Container(key=f"c{number}", pod="s", name=f"n{number}", state=ContainerState.CREATING)
            node = step(node, ContainerCreating(container), policy).node
        return node


async def test_a_scrape_is_cheap(tmp_path: Path) -> None:
    """With a thousand containers it holds up the loop for no longer than ten milliseconds."""
    store = Full(tmp_path / "state")
    client = RuntimeClient(f"unix://{tmp_path}/none.sock")
    topology = machine(nodes=8, cores=24)
    controller = Controller(Settings(), topology, StaticPolicy(StaticOptions()), store, client, RecordingLog())
    metrics = registry(controller)
    took_s = []
    for _ in range(10):
        begun_s = time.thread_time()
        metrics.render("")
        took_s.append(time.thread_time() - begun_s)
    await controller.stop()
    store.close()

    print(f"a scrape took {min(took_s) * 1000:.1f} ms")
    assert min(took_s) < SCRAPE_LIMIT_S
