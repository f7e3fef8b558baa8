"""The cgroups of pods weigh what the kubelet lets them weigh."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.benefit.cgroups import NodeCgroups
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import available
from lab.kubelet.kubelet import ContainerSpec, PodSpec

MOUNT = Path("/sys/fs/cgroup")
MIB = 1 << 20


@pytest.fixture
def node() -> Iterator[NodeCgroups]:
    """Cgroups of the machine, below a root of our own."""
    if reason := available():
        pytest.skip(reason)
    pods = PodCgroups(f"/criproxy-benefit-{uuid.uuid4().hex[:8]}")
    yield NodeCgroups(pods)
    pods.remove()


def pod(name: str, request_milli: int = 0, limit_milli: int = 0) -> PodSpec:
    """A pod of one container."""
    memory_bytes = 64 * MIB if limit_milli else 0
    spec = ContainerSpec(
        "c0", "image", cpu_request_milli=request_milli, cpu_limit_milli=limit_milli, memory_limit_bytes=memory_bytes
    )
    return PodSpec(name, (spec,))


def weight(node: NodeCgroups, path: str) -> int:
    """Shares on cgroup v1, the weight on v2."""
    if node.version == 2:
        return int((MOUNT / path.strip("/") / "cpu.weight").read_text())
    return int((MOUNT / "cpu" / path.strip("/") / "cpu.shares").read_text())


def shares(node: NodeCgroups, milli: int) -> int:
    """What the kubelet makes of a request."""
    on_v1 = max(milli * 1024 // 1000, 2)
    return 1 + (on_v1 - 2) * 9999 // 262142 if node.version == 2 else on_v1


def test_pods_and_classes_weigh_what_they_ask_for(node: NodeCgroups) -> None:
    """A class as much as its pods together; BestEffort as little as possible."""
    root = f"{node.pods.root}/kubepods"
    guaranteed, first, _, best = (
        node.make(each) for each in (pod("g", 1000, 1000), pod("b1", 225), pod("b2", 300), pod("e"))
    )

    assert weight(node, guaranteed) == shares(node, 1000)
    assert weight(node, first) == shares(node, 225)
    assert weight(node, f"{root}/burstable") == shares(node, 525)
    assert weight(node, best) == weight(node, f"{root}/besteffort") == shares(node, 0)
    assert weight(node, root) == shares(node, 1000 * (os.cpu_count() or 1))


def test_the_pod_has_the_quota_of_its_containers(node: NodeCgroups) -> None:
    """Where all of them have a limit."""
    limited, unlimited = node.make(pod("g", 1000, 1000)), node.make(pod("b", 225))
    lifted = node.make(pod("l", 1000, 1000), lifted=True)

    assert [node.quota_us(each) for each in (limited, unlimited, lifted)] == [100_000, -1, -1]


def test_a_pod_that_is_gone_weighs_nothing(node: NodeCgroups) -> None:
    """Its cgroup is removed, and its class is lighter with the next pod."""
    gone = node.make(pod("b1", 400))
    node.remove(gone)
    node.make(pod("b2", 225))

    assert weight(node, f"{node.pods.root}/kubepods/burstable") == shares(node, 225)
    assert not (MOUNT / ("" if node.version == 2 else "cpu") / gone.strip("/")).exists()
