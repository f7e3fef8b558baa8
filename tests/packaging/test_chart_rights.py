"""The rights of the chart's account suffice: a whole agent, a daemon, and an API server that counts requests."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from criproxy.agent.kubernetes.client import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODE_PLACEMENTS,
    NODE_POLICIES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
)
from lab.apiserver.server import ApiServer, Asked
from lab.emulator.runtime import EmbeddedRuntime
from packager import chart
from tests.daemons import Serve
from tests.packaging import helm

NAMESPACE = "kube-system"
NODE = "worker-1"
TAINT = {"key": "criproxy.io/not-ready", "effect": "NoSchedule"}
POLICY = {"nodeSelector": {}, "policy": {"policy": "static", "reservedCpus": "0"}, "rollout": {"try": "1s"}}
Right = tuple[str, str, str, str]
"""Role or ClusterRole, group, resource with its subresource, verb."""


@pytest.fixture(scope="module")
def granted(tmp_path_factory: pytest.TempPathFactory) -> set[Right]:
    """Return the rights that the chart gives to the account of its pods."""
    if not helm.available():
        pytest.skip("no Helm: python -m tests.packaging.helm fetches it")
    objects, _ = helm.objects(chart.build(tmp_path_factory.mktemp("chart")), {})
    bound = {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in objects if "roleRef" in each}
    return {
        (each["kind"], group, resource, verb)
        for each in objects
        if (each["kind"], each["metadata"]["name"]) in bound
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def is_granted(asked: Asked, granted: set[Right]) -> bool:
    """Whether the account may do this; what the Role gives counts in the namespace of the release."""
    name = "/".join(filter(None, (asked.resource.plural, asked.subresource)))
    rights = {(asked.resource.group, name, verb) for verb in needed(asked)}
    kinds = ("ClusterRole", "Role") if asked.namespace == NAMESPACE else ("ClusterRole",)
    return all(any((kind, *right) in granted for kind in kinds) for right in rights)


def needed(asked: Asked) -> set[str]:
    """Return the verbs that a request needs: an apply may create."""
    applies = "apply-patch" in asked.headers.get("Content-Type", "") and not asked.subresource
    return {asked.verb} | ({"create"} if applies and asked.resource != NODES else set())


@asynccontextmanager
async def agent(apiserver: ApiServer, directory: Path, *options: str) -> AsyncIterator[None]:
    """Run `criproxy agent` with the environment of the chart's pod."""
    cluster = {"name": "c", "cluster": {"server": apiserver.url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "clusters": [cluster],
        "users": [{"name": "u", "user": {}}],
        "contexts": [context],
        "current-context": "c",
    }
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "criproxy", "agent", "--first-contact=0s", f"--kubeconfig={kubeconfig}"),
        *(f"--control-socket={directory}/run/agent/pod/control.sock", f"--namespace={NAMESPACE}", *options),
        env={**os.environ, "NODE_NAME": NODE, "POD_NAME": "criproxy-node-x"},
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def fill(apiserver: ApiServer) -> None:
    """Make what there is in a cluster when the pod starts, and a policy for its node."""
    create = apiserver.objects.create
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    create(NODES, {"metadata": {"name": NODE}, "spec": {"taints": [TAINT]}, "status": {"conditions": [ready]}}, "test")
    create(PODS, {"metadata": {"name": "criproxy-node-x", "namespace": NAMESPACE}}, "test")
    create(
        CONFIG_MAPS, {"metadata": {"name": "cards", "namespace": NAMESPACE}, "data": {"default": "version: v1"}}, "test"
    )
    lease = {
        "metadata": {"name": "criproxy-install-0", "namespace": NAMESPACE, "labels": {"criproxy.io/lease": "install"}}
    }
    create(LEASES, lease | {"spec": {"holderIdentity": "criproxy-node-x"}}, "test")
    create(NODE_POLICIES, {"metadata": {"name": "all"}, "spec": POLICY}, "test")


def happened(apiserver: ApiServer) -> set[str]:
    """Return what the agent has done so far."""
    objects = apiserver.objects
    placements: list[dict[str, Any]] = objects.all(NODE_PLACEMENTS)
    done = {
        "placement": any(each.get("status", {}).get("phase") == "Applied" for each in placements),
        "topology": bool(objects.all(NODE_RESOURCE_TOPOLOGIES)),
        "rollout": any(each.resource == LEASES and each.verb == "create" for each in apiserver.asked),
        "status of the policy": bool(objects.get(NODE_POLICIES, "all").get("status")),
        "configurations": any(each.resource == CONFIG_MAPS and each.verb == "watch" for each in apiserver.asked),
        "events": bool(objects.all(EVENTS)),
    }
    return {name for name, is_done in done.items() if is_done}


EXPECTED = {"placement", "topology", "rollout", "status of the policy", "configurations"}


def test_the_signs_on_a_node_are_granted(granted: set[Right]) -> None:
    """The taint, labels, annotations and the condition, which come only after half a minute."""
    assert granted >= {("ClusterRole", "", "nodes", "patch"), ("ClusterRole", "", "nodes/status", "patch")}


@pytest.mark.slow
async def test_the_agent_needs_no_more_than_the_chart_gives(tmp_path: Path, granted: set[Right]) -> None:
    """It tries a policy and keeps it, publishes the node and waits for its cards, with the chart's rights alone."""
    async with ApiServer() as apiserver, EmbeddedRuntime(tmp_path / "runtime.sock"):
        fill(apiserver)
        async with (
            Serve(tmp_path, policy="policy: none\n", cpus="0-3") as serve,
            serve.kubelet(),
            agent(apiserver, tmp_path, "--device-configurations=cards"),
        ):
            await apiserver.until(lambda: happened(apiserver) >= EXPECTED, 60)
            asked = [*apiserver.asked]

    assert {
        (each.verb, each.resource.plural, each.subresource) for each in asked if not is_granted(each, granted)
    } == set()
