"""Alerts about vGPUs, evaluated by Debian's promtool: each fires when it should, and not before."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.firing import ALERTS, assert_rules

GROUP = "criproxy-vgpus"
LAST_MIN = 35


@dataclass(frozen=True, slots=True)
class Case:
    """A series of one node by the minute, in promtool's notation: ``0x20`` is 0 and twenty more minutes of it."""

    metric: str
    lasting: str
    """Values for which the alert fires."""
    times_min: tuple[int, int]
    """When it does not fire yet, and when it does."""
    short: str
    """Values that are over too soon."""
    over_min: int
    """When they are."""
    value: str = "0"
    """What the alert says."""
    labels: dict[str, str] = field(default_factory=dict)

    def series(self, values: str) -> dict[str, str]:
        """As promtool reads it."""
        labels = {"instance": "node-1", **self.labels}
        inner = ",".join(f'{name}="{word}"' for name, word in labels.items())
        return {"series": f"{self.metric}{{{inner}}}", "values": values}


MEMORY = {"device_class": "nvidia", "quantity": "memory"}
PROFILE = {"device_class": "nvidia", "profile": "gpu-8g"}
CLASS = {"class": "nvidia"}
CASES = {
    "CriproxyUsageWatcherSilent": Case("criproxy_usage_watcher_up", "1x4 0x30", (9, 10), "1x4 0x3 1x30", 8),
    "CriproxyUsageUnknown": Case(
        "criproxy_device_plugin_usage_problem", "0x4 1x30", (9, 10), "0x4 1x3 0x30", 8, labels=CLASS
    ),
    "CriproxyContainersOverQuota": Case(
        "criproxy_device_over_quota", "_x4 2x30", (18, 20), "1x11 stale _x3 1x8 stale", 11, "2", MEMORY
    ),
    "CriproxyVgpusExhausted": Case("criproxy_vgpu_free", "1x4 0x30", (19, 20), "0x13 1 0x13", 13, labels=PROFILE),
    "CriproxyPodFilesNotWritten": Case("criproxy_pod_file_failures_total", "0x4 6+6x30", (9, 10), "0x4 1x30", 8),
}


def rules() -> dict[str, dict[str, Any]]:
    """The rules of our group, by alert."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for group in groups if group["name"] == GROUP for rule in group["rules"]}


def fired(alert: str, case: Case) -> dict[str, Any]:
    """The alert with its labels, and its texts with these labels in them."""
    rule, labels = rules()[alert], {"instance": "node-1", **case.labels}
    texts = dict(rule["annotations"])
    for name, text in texts.items():
        for label, word in labels.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", word)  # noqa: PLW2901 (one label after the other)
        texts[name] = text.replace("{{ $value }}", case.value)
    assert "{{" not in str(texts)
    return {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": texts}


@pytest.mark.parametrize(("alert", "case"), CASES.items(), ids=list(CASES))
def test_an_alert_fires_in_time(tmp_path: Path, alert: str, case: Case) -> None:
    """Its texts name the node and what is wrong there; what is over soon is no reason to call anybody."""

    def test(values: str, expected: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
        at = [{"eval_time": f"{m}m", "alertname": alert, "exp_alerts": found} for m, found in expected.items()]
        return {"interval": "1m", "input_series": [case.series(values)], "alert_rule_test": at}

    quiet_min, fires_min = case.times_min
    lasting = test(case.lasting, {quiet_min: [], fires_min: [fired(alert, case)]})
    assert_rules(tmp_path, [lasting, test(case.short, {case.over_min: [], LAST_MIN: []})])


def test_every_alert_about_vgpus_is_tested() -> None:
    """Each of their group has a case."""
    assert rules().keys() == CASES.keys()
