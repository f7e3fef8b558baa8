"""Alerts that fire, evaluated by Debian's promtool: for an hour all is well, then a situation lasts for two."""

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.prometheus import find

ALERTS = Path(__file__).parents[2] / "docs/monitoring/alerts.yaml"
WELL_MIN = 60
LASTS_MIN = 120
"""Longer than any alert waits."""
COUNTS = ("_total", "_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class Case:
    """What is scraped before and in a situation."""

    name: str
    alerts: Collection[str]
    """Those that fire."""
    well: str
    """The metrics when all is well."""
    seen: str
    """Those in the situation."""
    repeats: bool = False
    """Whether what has been counted since then is counted again in each minute."""
    ages: Mapping[str, float] = field(default_factory=dict)
    """Metrics that follow the clock: how much they grow in a minute."""
    only: bool = True
    """Whether no other alert fires."""


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each time series."""
    families = text_string_to_metric_families(text)
    return [(each.name, each.labels, each.value) for family in families for each in family.samples]


def assert_fire(directory: Path, cases: Sequence[Case]) -> None:
    """The alerts of each case fire in its situation, and not before."""
    assert_rules(directory, [_test(case) for case in cases])


def assert_rules(directory: Path, tests: Sequence[Mapping[str, Any]]) -> None:
    """Our rules pass these tests of promtool."""
    if (promtool := find("promtool")) is None:
        pytest.skip("no promtool: python -m tests.deploy.prometheus fetches Debian's")
    path = directory / "alerts.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": [*tests]}))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _test(case: Case) -> dict[str, Any]:
    before = {_series(name, labels): value for name, labels, value in samples(case.well)}
    after = {_series(name, labels): (name, value) for name, labels, value in samples(case.seen)}
    series = []
    for each in before.keys() | after.keys():
        was, (name, value) = before.get(each), after.get(each, ("", None))
        growth = case.ages.get(name, 0.0)
        if case.repeats and name.endswith(COUNTS) and value is not None:
            growth = value - (was or 0.0)
        series.append({"series": each, "values": f"{_lasting(was, WELL_MIN)} {_lasting(value, LASTS_MIN, growth)}"})
    wanted = "" if case.only else f',alertname=~"{"|".join(case.alerts)}"'
    return {
        "name": case.name,
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            _fired(wanted, WELL_MIN, WELL_MIN, ()),
            _fired(wanted, WELL_MIN + LASTS_MIN, LASTS_MIN, case.alerts),
        ],
    }


def _fired(wanted: str, at_min: int, within_min: int, alerts: Collection[str]) -> dict[str, Any]:
    """Which alerts have fired within the time before a moment."""
    return {
        "expr": f'group by (alertname) (last_over_time(ALERTS{{alertstate="firing"{wanted}}}[{within_min}m]))',
        "eval_time": f"{at_min}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)],
    }


def _series(name: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted({**labels, "instance": "n"}.items()))
    return f"{name}{{{inner}}}"


def _lasting(value: float | None, minutes: int, growth: float = 0.0) -> str:
    return f"_x{minutes + 1}" if value is None else f"{value}{growth:+}x{minutes}"
