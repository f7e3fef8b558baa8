"""What the rig writes for Kubernetes' programs, and what it makes of the chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from criproxy.config.load import load
from lab.cluster import cards, chart, control_plane, manifests, worker
from lab.cluster.checks import policies
from lab.cluster.cluster import GROUPS, chosen
from lab.cluster.space import ADDRESS, SERVICE_ADDRESS
from tests.packaging import helm

PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"


def test_the_control_plane_starts_in_order_with_one_key_and_one_network() -> None:
    """The store comes first; pods find the API server at the first address of its network."""
    found = control_plane.commands(Path("/bin"), Path("/folder"))
    assert list(found) == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    server = found["kube-apiserver"]
    assert f"--advertise-address={ADDRESS}" in server
    assert SERVICE_ADDRESS.startswith(control_plane.SERVICES.removesuffix("0.0/16"))
    key = "/folder/service-accounts.key"
    assert f"--service-account-signing-key-file={key}" in server
    assert f"--service-account-private-key-file={key}" in found["kube-controller-manager"]


def test_a_kubeconfig_names_the_server_who_signed_it_and_the_token() -> None:
    """The last certificate of the API server's file is that of who has signed it."""
    config = yaml.safe_load(control_plane.kubeconfig("secret", Path("/ca.crt")))
    (cluster,), (user,) = config["clusters"], config["users"]
    assert cluster["cluster"] == {"server": f"https://{ADDRESS}:443", "certificate-authority": "/ca.crt"}
    assert user["user"] == {"token": "secret"}
    assert control_plane.authority(PEM.format("own") + PEM.format("signer")) == PEM.format("signer")


def test_the_kubelet_calls_criproxy_and_registers_with_the_startup_taint() -> None:
    """It is told so on its command line; its cgroups are below that of the cluster."""
    command = worker.kubelet_command(Path("/kubelet"), Path("/c"), Path("/k"), "unix:///criproxy.sock")
    assert "--container-runtime-endpoint=unix:///criproxy.sock" in command
    assert "--register-with-taints=criproxy.io/not-ready=:NoSchedule" in command
    assert worker.configuration("/root", Path("/static"))["cgroupRoot"] == "/root"
    (bridge,) = worker.network(Path("/folder"))["plugins"]
    assert bridge["ipam"]["dataDir"] == "/folder/addresses"


def test_pods_ask_for_what_their_class_needs() -> None:
    """Limits that equal requests make a pod Guaranteed."""
    spec = manifests.guaranteed("one", "1", node="worker-1")["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "1", "memory": "64Mi"}
    assert spec["nodeName"] == "worker-1"
    assert "nodeName" not in manifests.pod("any")["spec"]


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


def test_the_device_plugin_is_told_which_card_to_divide() -> None:
    """The worker's policy file has one card divided, and the other whole."""
    policy = yaml.safe_load(cards.POLICY)["devices"]["plugin"]
    (profile,) = policy["profiles"]
    assert (profile["count"], profile["select"]) == (cards.VGPUS, {"indexes": [0]})
