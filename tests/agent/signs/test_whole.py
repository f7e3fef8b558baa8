"""`criproxy agent` as a process, beside a daemon and an API server: what others see of a node, and choose for it."""

from pathlib import Path

import pytest

from criproxy.agent.kubernetes.client import CONFIG_MAPS, EVENTS, NODES
from criproxy.agent.signs.device_configuration import LABEL
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.plugin.named_configuration import FILE_NAME, from_json
from lab.apiserver.server import ApiServer
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.agent.parts import kubeconfig, program
from tests.agent.signs.test_device_configuration import A100, T4
from tests.agent.signs.world import NAME, TAINT, NodeWorld
from tests.daemons import Serve

BIG = PodSpec("big", (ContainerSpec("main", IMAGE, cpu_limit_milli=9000, memory_limit_bytes=1 << 30),))


def reasons(server: ApiServer) -> set[str]:
    """The reasons of all Events."""
    return {each["reason"] for each in server.objects.all(EVENTS)}


@pytest.mark.slow
async def test_what_others_see_of_a_node(tmp_path: Path, apiserver: ApiServer) -> None:
    """Taint, condition, Events and the configuration of cards, with nothing replaced but the API server."""
    world = NodeWorld(apiserver)
    world.create(taints=[TAINT])
    apiserver.objects.update(
        NODES, NAME, "", lambda node: {**node, "metadata": {**node["metadata"], "labels": {LABEL: "a100"}}}
    )
    texts = {"metadata": {"name": "gpus", "namespace": "criproxy"}, "data": {"a100": A100, "t4": T4}}
    apiserver.objects.create(CONFIG_MAPS, texts)
    kubeconfig(tmp_path, apiserver.url)
    chosen = tmp_path / "state" / FILE_NAME
    async with (
        EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(host_root=tmp_path)),
        Serve(tmp_path, policy="policy: static\nreservedCpus: '0'\n", cpus="0-3") as serve,
        serve.kubelet() as kubelet,
    ):
        await kubelet.run_pod(PodSpec("one", (ContainerSpec("main", IMAGE),)))
        async with program(tmp_path, "--namespace=criproxy", "--device-configurations=gpus"):
            await apiserver.until(lambda: world.taints == [] and world.status() == "True")
            await apiserver.until(lambda: {"CriproxyReady", "DeviceConfigurationChosen"} <= reasons(apiserver))
            assert from_json(chosen.read_bytes()).text == A100
            with pytest.raises(RuntimeCallError):
                await kubelet.run_pod(BIG)
            await apiserver.until(lambda: "PlacementRefused" in reasons(apiserver))
            texts["data"] = {"a100": "version: v2\n"}
            apiserver.objects.update(CONFIG_MAPS, "gpus", "criproxy", lambda old: {**old, "data": texts["data"]})
            await apiserver.until(lambda: "DeviceConfigurationRefused" in reasons(apiserver))
            assert from_json(chosen.read_bytes()).text == A100
    event = next(each for each in apiserver.objects.all(EVENTS) if each["reason"] == "PlacementRefused")
    assert event["involvedObject"]["name"] == "big"
    assert event["involvedObject"]["uid"]
