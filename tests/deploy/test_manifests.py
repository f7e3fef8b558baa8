"""The manifests for scaling: Kubernetes takes them, and what they name exists."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy.prometheus import find

FOLDER, MONITORING = ROOT / "deploy/scaling", ROOT / "docs/monitoring"
AUTOSCALERS = ("hpa.yaml", "hpa-by-node.yaml")
VERSIONS = ("1.25", "1.30", "1.37")
"""Of Kubernetes: the oldest and the newest whose schemas there are, and one between."""


def loaded(name: str) -> dict[str, Any]:
    """Return one of the manifests."""
    values: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return values


def rules() -> dict[str, list[dict[str, Any]]]:
    """Return the rules of the adapter: those for pods, and external ones."""
    adapter = loaded("prometheus-adapter.yaml")
    return {"Pods": adapter["rules"], "External": adapter["externalRules"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", AUTOSCALERS)
def test_an_autoscaler_is_one_of_kubernetes(name: str, version: str) -> None:
    """It is a HorizontalPodAutoscaler of the API's own schema, in which nothing else may stand."""
    kubernetes_validate.validate(loaded(name), version, strict=True)


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_the_adapter_has_what_autoscalers_ask_for(name: str) -> None:
    """Each metric of pods, and each external one, is made by a rule of that kind."""
    made = {kind: {rule["name"]["as"] for rule in own} for kind, own in rules().items()}
    asked = [metric for metric in loaded(name)["spec"]["metrics"] if metric["type"] != "Resource"]

    assert asked
    for metric in asked:
        assert metric[metric["type"].lower()]["metric"]["name"] in made[metric["type"]]


def test_rules_have_the_shape_of_the_adapter() -> None:
    """Series, resources, a name and a query with the adapter's words; pods have both labels as resources."""
    for kind, own in rules().items():
        for rule in own:
            assert set(rule) == {"seriesQuery", "resources", "name", "metricsQuery"}
            assert "<<.LabelMatchers>>" in rule["metricsQuery"]
            assert set(re.findall(r"<<(.*?)>>", rule["metricsQuery"])) <= {".LabelMatchers", ".GroupBy", ".Series"}
            if kind == "Pods":
                assert "<<.GroupBy>>" in rule["metricsQuery"]
                assert rule["resources"]["overrides"] == {
                    "namespace": {"resource": "namespace"},
                    "pod": {"resource": "pod"},
                }


def scraping() -> dict[str, Any]:
    """The configuration of Prometheus without what Debian's, which is built without Kubernetes, does not know."""
    values = loaded("prometheus.yaml")
    for job in values["scrape_configs"]:
        (found,) = job.pop("kubernetes_sd_configs")
        assert found == {"role": "pod", "selectors": [{"role": "pod", "label": "app.kubernetes.io/name=criproxy"}]}
    return values


def alerts() -> Any:  # noqa: ANN401 (YAML)
    """The rules of alerts."""
    return yaml.safe_load((MONITORING / "alerts.yaml").read_text())


def dashboard() -> dict[str, Any]:
    """What the dashboard asks for, as rules."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    rules = [{"record": f"r{i}", "expr": each.replace("$__rate_interval", "5m")} for i, each in enumerate(asked)]
    return {"groups": [{"name": "dashboard", "rules": rules}]}


@pytest.mark.parametrize(("what", "values"), [("config", scraping), ("rules", alerts), ("rules", dashboard)])
def test_prometheus_takes_our_files(tmp_path: Path, what: str, values: Callable[[], dict[str, Any]]) -> None:
    """Debian's promtool finds nothing wrong with them, and can read every expression."""
    if (promtool := find("promtool")) is None:
        pytest.skip("no promtool: python -m tests.deploy.prometheus fetches Debian's")
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(values()))
    done = subprocess.run([promtool, "check", what, file], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_manifests_are_documented() -> None:
    """docs/vgpu.md names each of them."""
    page = (ROOT / "docs/vgpu.md").read_text()
    for path in sorted(Path(FOLDER).iterdir()):
        assert f"deploy/scaling/{path.name}" in page
