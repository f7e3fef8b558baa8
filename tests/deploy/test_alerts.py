"""Alerts about vGPUs, evaluated by Debian's promtool: each fires when it should, and not before."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.prometheus import find

ALERTS = Path(__file__).parents[2] / "docs/monitoring/alerts.yaml"
GROUP = "criproxy-vgpus"
LAST_MIN = 35


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A series of one node by the minute, and when its alert fires."""

    metric: str
    values: str
    """In promtool's notation: ``0x20`` is 0 and twenty more minutes of it."""
    quiet_min: int
    """At this minute nothing fires yet."""
    fires_min: int | None
    """At this one it does; None: never."""
    value: str = "0"
    """What the alert says."""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def series(self) -> dict[str, str]:
        """As promtool reads it."""
        labels = {"instance": "node-1", **self.labels}
        inner = ",".join(f'{name}="{word}"' for name, word in labels.items())
        return {"series": f"{self.metric}{{{inner}}}", "values": self.values}


SILENT, UNKNOWN, OVER = (
    "criproxy_usage_watcher_up",
    "criproxy_device_plugin_usage_problem",
    "criproxy_device_over_quota",
)
FREE, FILES = "criproxy_vgpu_free", "criproxy_pod_file_failures_total"
MEMORY = {"device_class": "nvidia", "quantity": "memory"}
PROFILE = {"device_class": "nvidia", "profile": "gpu-8g"}
CASES = {
    "CriproxyUsageWatcherSilent": Case(metric=SILENT, values="1x4 0x30", quiet_min=9, fires_min=10),
    "CriproxyUsageUnknown": Case(
        metric=UNKNOWN, values="0x4 1x30", quiet_min=9, fires_min=10, labels={"class": "nvidia"}
    ),
    "CriproxyContainersOverQuota": Case(
        metric=OVER, values="_x4 2x30", quiet_min=18, fires_min=20, value="2", labels=MEMORY
    ),
    "CriproxyVgpusExhausted": Case(metric=FREE, values="1x4 0x30", quiet_min=19, fires_min=20, labels=PROFILE),
    "CriproxyPodFilesNotWritten": Case(metric=FILES, values="0x4 6+6x30", quiet_min=9, fires_min=10),
}
OVER_SOON = {
    "CriproxyUsageWatcherSilent": Case(metric=SILENT, values="1x4 0x3 1x30", quiet_min=8, fires_min=None),
    "CriproxyUsageUnknown": Case(
        metric=UNKNOWN, values="0x4 1x3 0x30", quiet_min=8, fires_min=None, labels={"class": "nvidia"}
    ),
    "CriproxyContainersOverQuota": Case(
        metric=OVER, values="1x11 stale _x3 1x8 stale", quiet_min=11, fires_min=None, labels=MEMORY
    ),
    "CriproxyVgpusExhausted": Case(metric=FREE, values="0x13 1 0x13", quiet_min=13, fires_min=None, labels=PROFILE),
    "CriproxyPodFilesNotWritten": Case(metric=FILES, values="0x4 1x30", quiet_min=8, fires_min=None),
}


def rule_of(alert: str) -> dict[str, Any]:
    """A rule of our file."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rule: dict[str, Any] = next(rule for group in groups for rule in group["rules"] if rule.get("alert") == alert)
    return rule


def fired(alert: str, case: Case) -> dict[str, Any]:
    """The alert with its labels, and its texts with these labels in them."""
    rule, labels = rule_of(alert), {"instance": "node-1", **case.labels}
    texts = dict(rule["annotations"])
    for name, text in texts.items():
        for label, word in labels.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", word)  # noqa: PLW2901 (one label after the other)
        texts[name] = text.replace("{{ $value }}", case.value)
    assert "{{" not in str(texts)
    return {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": texts}


@pytest.mark.parametrize(
    ("alert", "case"),
    [
        *(pytest.param(alert, case, id=alert) for alert, case in CASES.items()),
        *(pytest.param(alert, case, id=f"{alert}-over-soon") for alert, case in OVER_SOON.items()),
    ],
)
def test_an_alert_fires_in_time(tmp_path: Path, alert: str, case: Case) -> None:
    """Its texts name the node and what is wrong there; what is over soon is no reason to call anybody."""
    if (promtool := find("promtool")) is None:
        pytest.skip("no promtool: python -m tests.deploy.prometheus fetches Debian's")
    expected = [
        {"eval_time": f"{case.quiet_min}m", "alertname": alert, "exp_alerts": []},
        {
            "eval_time": f"{case.fires_min or LAST_MIN}m",
            "alertname": alert,
            "exp_alerts": [] if case.fires_min is None else [fired(alert, case)],
        },
    ]
    test = {"interval": "1m", "input_series": [case.series], "alert_rule_test": expected}
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_about_vgpus_is_tested() -> None:
    """Each of their group has both cases."""
    groups = {group["name"]: group["rules"] for group in yaml.safe_load(ALERTS.read_text())["groups"]}

    assert {rule["alert"] for rule in groups[GROUP]} == set(CASES) == set(OVER_SOON)
