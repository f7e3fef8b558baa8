"""Cards of our own device plugin on a node: its annotation alone decides what a create gets, at each restart again."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.builtin import INTEL_GPU, NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import Response, joined
from criproxy.model.cpuset import parse_cpuset
from lab.kubelet.kubelet import PodSpec
from tests.devices.fixture import ALI
from tests.node.devices.test_guard import envs
from tests.node.devices.test_hints import GPU, NODE_1, SIZES, Node, node_at, place

NODE_0 = (parse_cpuset("1-15"), "0")
"""But for the reserved CPU."""
KEY = "devices.criproxy.io/nvidia.com_gpu"


def allocated(pod: str, resource: str, *ids: str, qos: str = "Burstable") -> PodSpec:
    """A pod whose container has the annotation of our Allocate."""
    annotations = joined(Response(), resource, ids).annotations
    return PodSpec(pod, (replace(SIZES[qos], annotations=annotations),))


def visible(config: api.ContainerConfig) -> bytes:
    """The value of the variable of NVIDIA's hook, which is there once."""
    return envs(config)["NVIDIA_VISIBLE_DEVICES"]


def nodes(config: api.ContainerConfig) -> list[str]:
    """The device nodes of a create as the runtime got it."""
    return [device.host_path for device in config.devices]


@pytest.mark.parametrize(
    ("resource", "ids", "shown", "paths", "expected"),
    [
        pytest.param(GPU, ("GPU-a::3",), b"GPU-a", ["/dev/nvidia0", "/dev/nvidiactl"], NODE_0, id="scenario-4"),
        pytest.param(
            f"{GPU}.shared", ("GPU-b::0", "GPU-b::4"), b"GPU-b", ["/dev/nvidia1", "/dev/nvidiactl"], NODE_1, id="shared"
        ),
        pytest.param(
            "example.com/fast", ("GPU-b::0",), b"GPU-b", ["/dev/nvidia1", "/dev/nvidiactl"], NODE_1, id="renamed"
        ),
        pytest.param("aliyun.com/npu.shared", ("0::1",), b"void", ["/dev/npu0"], NODE_1, id="another-class"),
    ],
)
async def test_what_was_allocated(
    node: Node, resource: str, ids: tuple[str, ...], shown: bytes, paths: list[str], expected: tuple[object, str]
) -> None:
    """A container sees the cards of its replicas, each once, and CPUs and memory are next to them."""
    _, config = await node.create(allocated("gpu", resource, *ids))

    assert visible(config) == shown
    assert nodes(config) == paths
    assert place(config) == expected


async def test_shares_of_another_separator(tmp_path: Path) -> None:
    """A class whose own plugin separates shares otherwise has ours by our separator."""
    kind = replace(ALI, replica_separator="-")
    node = node_at(tmp_path, DeviceRules(classes=(NVIDIA, kind, INTEL_GPU)))
    async with node.world:
        _, config = await node.create(allocated("npu", "aliyun.com/npu", "npu0::1"))

        assert nodes(config) == ["/dev/npu0"]
        assert place(config) == NODE_1


async def test_only_the_annotation_of_the_container_counts(node: Node) -> None:
    """Users write a pod's annotations: one of this name is no evidence; nor does the kubelet's checkpoint beside it.

    Two containers with replicas of one card each see that card.
    """
    _, forged = await node.create(PodSpec("forger", (SIZES["Burstable"],), annotations={KEY: "GPU-b"}))
    _, first = await node.create(allocated("one", GPU, "GPU-a::1"), "GPU-b::1")
    _, second = await node.create(allocated("two", GPU, "GPU-a::0"))

    assert (visible(forged), nodes(forged)) == (b"void", [])
    assert visible(first) == visible(second) == b"GPU-a"
    assert place(first) == NODE_0
    assert node.world.controller.devices.cards_given()["nvidia"] == 1


async def test_containers_that_restart_keep_their_card(tmp_path: Path) -> None:
    """Hours after Allocate, and after a restart of criproxy, the repeated annotation means the same card."""
    node = node_at(tmp_path)
    pod = allocated("gpu", GPU, "GPU-b::2", qos="Guaranteed")
    async with node.world:
        sandbox_id, ids = await node.world.kubelet.run_pod(pod)
        first = node.world.runtime.core.records.containers[ids["main"]].config
        node.world.runtime.exit_container(ids["main"])
        await node.world.restart()
        await node.world.kubelet.stop(ids["main"])
        again = await node.world.kubelet.create(pod, sandbox_id, pod.containers[0], attempt=1)

        config = node.world.runtime.core.records.containers[again].config
        assert visible(config) == visible(first) == b"GPU-b"
        assert nodes(config) == nodes(first) == ["/dev/nvidia1", "/dev/nvidiactl"]
        assert place(config)[0] <= NODE_1[0]


async def test_resources_of_several_plugins(tmp_path: Path) -> None:
    """A card of ours and one of a foreign plugin are both the container's; CPUs are next to both."""
    node = node_at(tmp_path)
    pod = PodSpec("gpu", (replace(SIZES["Burstable"], annotations={KEY + ".shared": "GPU-a::1"}),))
    async with node.world:
        _, config = await node.create(pod, "GPU-b")

        assert visible(config) == b"GPU-a,GPU-b"
        assert nodes(config) == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
