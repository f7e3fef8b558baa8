"""What the rig writes for Kubernetes' programs, and what it makes of the chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from criproxy.config.load import load
from lab.cluster import chart, manifests, worker
from lab.cluster.checks import policies
from lab.cluster.cluster import GROUPS, chosen
from tests.packaging import helm


def test_the_kubelet_calls_criproxy_and_registers_with_the_startup_taint() -> None:
    """It is told so on its command line; its cgroups are below that of the cluster."""
    command = worker.kubelet_command(Path("/kubelet"), Path("/c"), Path("/k"), "unix:///criproxy.sock")
    assert "--container-runtime-endpoint=unix:///criproxy.sock" in command
    assert "--register-with-taints=criproxy.io/not-ready=:NoSchedule" in command
    assert worker.configuration("/root", Path("/static"))["cgroupRoot"] == "/root"
    (bridge,) = worker.network(Path("/folder"))["plugins"]
    assert bridge["ipam"]["dataDir"] == "/folder/addresses"


@pytest.mark.parametrize("policy", [policies.GOOD, policies.BAD, policies.BALLOONS])
def test_policies_that_nodes_should_take_are_right(tmp_path: Path, policy: dict[str, Any]) -> None:
    """A mistake here would be taken for one of the agents."""
    (file := tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy))
    load(file, "any")  # raises what is wrong


def test_the_definition_of_topologies_is_structural() -> None:
    """Kubernetes accepts only definitions whose schema says the type of each field."""
    (version,) = manifests.topology_definition()["spec"]["versions"]

    def typed(schema: dict[str, Any]) -> bool:
        parts = [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]
        return ("type" in schema or schema.get("x-kubernetes-int-or-string", False)) and all(map(typed, parts))

    assert typed(version["schema"]["openAPIV3Schema"])


@pytest.mark.skipif(not helm.available(), reason="no Helm: make setup fetches it")
def test_the_charts_agent_runs_from_this_checkout() -> None:
    """Image and folders are the rig's; user, arguments, token and socket stay the chart's."""
    (before,) = [each for each in chart.objects({"nodeSelector": {"a": "b"}}) if each["kind"] == "DaemonSet"]
    after = chart.on_this_machine(before, Path("/control"), Path("/programs"), ["--first-contact=1s"])
    spec, old = after["spec"]["template"]["spec"], before["spec"]["template"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["wait"]
    (agent,), (old_agent,) = spec["containers"], old["containers"]
    assert agent["securityContext"] == old_agent["securityContext"]
    assert agent["args"] == [*old_agent["args"], "--first-contact=1s"]
    assert {"name": "control", "hostPath": {"path": "/control", "type": "DirectoryOrCreate"}} in spec["volumes"]
    assert all(each["image"] != old_agent["image"] for each in (*spec["initContainers"], agent))


def test_checks_are_chosen_by_group_or_by_name() -> None:
    """All of them have a docstring, which is what is printed of them, and run in the order of the groups."""
    everything = chosen([])
    assert all(each.__doc__ for each in everything)
    assert len(everything) == len(set(everything)) == sum(map(len, GROUPS.values()))
    assert chosen(["devices"]) == [*GROUPS["devices"]]
    assert [each.__name__ for each in chosen(["over_quota", "startup_taint"])] == ["startup_taint", "over_quota"]
    with pytest.raises(ValueError, match="no checks nonsense: there are agent"):
        chosen(["nonsense"])
