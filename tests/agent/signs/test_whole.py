"""`criproxy agent` as a process, beside a daemon and an API server: what others see of a node, and choose for it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from criproxy.agent.kubernetes.client import CONFIG_MAPS, EVENTS, NODES
from criproxy.agent.signs.device_configuration import LABEL
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.plugin.named_configuration import FILE_NAME, from_json
from lab.apiserver.server import ApiServer
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.agent.signs.test_device_configuration import A100, T4
from tests.agent.signs.world import NAME, TAINT, NodeWorld
from tests.daemons import Serve

BIG = PodSpec("big", (ContainerSpec("main", IMAGE, cpu_limit_milli=9000, memory_limit_bytes=1 << 30),))
LIMIT_S = 60.0


@asynccontextmanager
async def agent(server: ApiServer, directory: Path) -> AsyncIterator[None]:
    """Run the program."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "criproxy", "agent", "--first-contact=0s", f"--kubeconfig={kubeconfig}"),
        *(f"--node-name={NAME}", f"--control-socket={directory}/run/agent/pod/control.sock"),
        *("--namespace=criproxy", "--device-configurations=gpus"),
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


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
    chosen = tmp_path / "state" / FILE_NAME
    async with (
        EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(host_root=tmp_path)),
        Serve(tmp_path, policy="policy: static\nreservedCpus: '0'\n", cpus="0-3") as serve,
        serve.kubelet() as kubelet,
    ):
        await kubelet.run_pod(PodSpec("one", (ContainerSpec("main", IMAGE),)))
        async with agent(apiserver, tmp_path):
            await apiserver.until(lambda: world.taints == [] and world.status() == "True", LIMIT_S)
            await apiserver.until(lambda: {"CriproxyReady", "DeviceConfigurationChosen"} <= reasons(apiserver), LIMIT_S)
            assert from_json(chosen.read_bytes()).text == A100
            with pytest.raises(RuntimeCallError):
                await kubelet.run_pod(BIG)
            await apiserver.until(lambda: "PlacementRefused" in reasons(apiserver), LIMIT_S)
            texts["data"] = {"a100": "version: v2\n"}
            apiserver.objects.update(CONFIG_MAPS, "gpus", "criproxy", lambda old: {**old, "data": texts["data"]})
            await apiserver.until(lambda: "DeviceConfigurationRefused" in reasons(apiserver), LIMIT_S)
            assert from_json(chosen.read_bytes()).text == A100
    event = next(each for each in apiserver.objects.all(EVENTS) if each["reason"] == "PlacementRefused")
    assert event["involvedObject"]["name"] == "big"
    assert event["involvedObject"]["uid"]
