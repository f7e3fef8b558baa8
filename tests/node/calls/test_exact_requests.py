"""Creates on a node whose kubelet serves the Pods API."""

from pathlib import Path

import pytest

from criproxy.cri import pods
from criproxy.cri.pods import SOCKET
from criproxy.model.record import Kind
from criproxy.model.resources import Interval
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.cri.test_pods import PodsKubelet, pod_of
from tests.node.world import World

MIB = 1 << 20


async def test_an_exact_request_outlives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Burstable container counts what it requests, not what its oom_score_adj allows; a status changes nothing."""
    monkeypatch.setattr(pods, "WAIT_S", 60.0)
    monkeypatch.setattr(pods, "ANSWER_S", 60.0)
    pod = PodSpec("web", (ContainerSpec("sidecar", IMAGE, cpu_request_milli=100, memory_request_bytes=300 * MIB),))
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    kubelet = PodsKubelet(tmp_path / SOCKET)
    kubelet.pods[pod.uid] = pod_of(pod.uid, sidecar="300Mi")
    server = await kubelet.start()
    async with World(tmp_path) as world:
        capacity_bytes = world.controller.node.topology.capacity_bytes
        _, ids = await MiniKubelet(world.client, memory_capacity_bytes=capacity_bytes).run_pod(pod)
        key = ids["sidecar"]
        asked = world.controller.node.containers[key].memory_request_bytes
        await world.controller.context.state.flush()
        records = await world.controller.context.state.find_history("default/web/sidecar")
        await world.restart()
        await world.controller.known()
        after = world.controller.node.containers[key].memory_request_bytes
    await server.stop(grace=None)

    assert asked == after == Interval(300 * MIB, 300 * MIB)
    sentences = next(record for record in records if record.kind is Kind.ASKED).sentences
    assert "no memory limit; memory request 300 MiB, from the kubelet's Pods API" in sentences
    assert sentences[-1] == "a sidecar (it restarts always), from the kubelet's Pods API"
