"""Answers of the daemon's command ``agent``, made by the daemon's own view of a planned node, for pure tests."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from criproxy.api.views.devices import Inventory
from criproxy.api.views.node_view import to_values
from criproxy.api.views.situation import Situation
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.holdings import Holdings
from criproxy.devices.plugin.published import Advertised, Published, PublishedCard
from criproxy.model.attributes import granted
from criproxy.model.machine.hardware import HugePages
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.resources import Interval
from criproxy.model.text.notices import Notice
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import GIB, shaped
from tests.placement.built import policy_of

MACHINE = "2s/4n/16c/2t"
"""Two sockets, four NUMA nodes of eight CPUs and 16 GiB."""
WEB = Container(
    key="web-1",
    pod="sandbox-web",
    name="web",
    pod_name="web",
    namespace="shop",
    qos=QosClass.BURSTABLE,
    cpu_milli=1500,
    memory_request_bytes=Interval(GIB, GIB),
    state=ContainerState.RUNNING,
)
"""It shares CPUs."""
DB = replace(
    WEB,
    key="db-1",
    pod="sandbox-db",
    name="db",
    pod_name="db-0",
    qos=QosClass.GUARANTEED,
    cpu_milli=2000,
    cpu_limit_milli=2000,
    memory_limit_bytes=8 * GIB,
    memory_request_bytes=Interval(8 * GIB, 8 * GIB),
)
"""It gets two exclusive CPUs."""


def planned(
    topology: Topology | None = None, containers: Iterable[Container] = (WEB, DB), policy: Policy | None = None
) -> Node:
    """Return a node with *containers*, placed by *policy* (by default pods with whole CPUs get exclusive ones)."""
    node, policy = Node(topology or shaped(MACHINE)), policy or default_policy()
    for each in containers:
        if each.pod not in node.pods:
            pod = Pod(key=each.pod, uid=f"uid-{each.pod}", name=each.pod_name, namespace=each.namespace, qos=each.qos)
            node = step(node, PodCreated(pod), policy).node
        node = step(node, ContainerCreating(each), policy).node
    return node.replace(applied={key: granted(grant) for key, grant in node.grants.items()})


def default_policy() -> Policy:
    """Return the policy topology-aware with CPU 0 reserved."""
    return policy_of("topology-aware", {"reservedResources": {"cpu": "cpuset:0"}})


def gpus(*, free: bool = True) -> Inventory:
    """Return two GPUs on the NUMA nodes 0 and 2, one whole, and one divided into four vGPUs of a profile."""
    cards = tuple(
        Card(number=number, id=f"GPU-{number}", pci=f"0000:{number}b:00.0", numa_node=2 * number) for number in (0, 1)
    )
    report = Published(
        version="0.0.0",
        instance="0123456789abcdef",
        resources=(
            Advertised(name="nvidia.com/gpu", device_class="nvidia", ids=1, healthy=1),
            Advertised(
                name="nvidia.com/vgpu-g4", device_class="nvidia", ids=4, healthy=4, profile="g4", memory_mib=4096
            ),
        ),
        cards=(
            PublishedCard(device_class="nvidia", id="GPU-0", replicas={"nvidia.com/gpu": 0}),
            PublishedCard(device_class="nvidia", id="GPU-1", replicas={"nvidia.com/vgpu-g4": 4}),
        ),
    )
    holdings = Holdings()
    if not free:
        share = {"ids": "GPU-1/g4/0", "source": "podresources"}
        holdings.note(DB.pod, DB.name, {"nvidia_allocated": {"nvidia.com/vgpu-g4": share}})
    return Inventory(report=report, classes=tuple(BUILTIN.values()), stocks={"nvidia": Stock(cards)}, holdings=holdings)


def view_of(
    node: Node | None = None,
    *,
    policy: Policy | None = None,
    notices: Iterable[Notice] = (),
    devices: Inventory | None = None,
    pages: Iterable[HugePages] = (),
    known: bool = True,
    revision: int = 1,
    **others: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    """Return the daemon's answer about *node*; *others* replace keys of the answer."""
    node, policy = node or planned(), policy or default_policy()
    situation = Situation(
        node=node,
        policy="topology-aware",
        reserved=options_of(policy).reserved(node.topology),
        notices=[*notices],
        placer=policy,
    )
    found = devices or Inventory(stocks={}, holdings=Holdings())
    return {
        "source": "daemon",
        "host": "worker-1",
        "time": "2026-11-30T00:00:00.000Z",
        "version": "0.0.0",
        "pid": 1,
        "started": "2026-11-29T00:00:00.000Z",
        "instance": "0123456789abcdef",
        "kubelet": {"last_call": "2026-11-29T23:59:58.000Z", "last_call_s": 2.0, "through": True},
        "configuration": {
            "file": "/etc/criproxy/policy.yaml",
            "hash": "0123456789ab",
            "loaded": "2026-11-29T00:00:00.000Z",
            "kept": False,
            "try": None,
        },
        "runtime": {"name": "containerd", "version": "2.1.0", "socket": "/run/containerd/containerd.sock"},
        "bypass": {"bypass": False, "mode": "off", "since": "", "reason": ""},
        "last_good": False,
        **to_values(situation, found, [*pages], known=known),
        "revision": revision,
        **others,
    }
