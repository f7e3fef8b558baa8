"""The daemon as a process on a node whose kubelet or driver hangs."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from criproxy import __version__
from criproxy.cli.client import ask
from criproxy.cri.runtime import RuntimeClient
from criproxy.errors import CriproxyError
from lab.emulator.runtime import EmbeddedRuntime
from lab.kubelet.kubelet import MiniKubelet
from tests.daemons import LIMIT_S, Serve
from tests.node.devices.test_create_checks_vgpu import pod_with
from tests.node.world import sharer

VGPUS = """
policy: static
reservedCpus: '0'
devices:
  podresources: {socket: ''}
  checkpoint: ''
  classes: [nvidia]
  plugin: {profiles: [{name: gpu-8g, class: nvidia, memory: 8192Mi, cores: 25}]}
"""


@pytest.mark.parametrize("creates", [12])
async def test_a_file_that_hangs_holds_up_neither_creates_nor_the_end(tmp_path: Path, creates: int) -> None:
    """Every create is answered, /readyz says what hangs, and SIGTERM ends the process although threads are stuck."""
    os.mkfifo(tmp_path / "checkpoint")
    (tmp_path / "policy.yaml").write_text(
        "policy: none\n"
        f'devices: {{classes: [nvidia], podresources: {{socket: ""}}, checkpoint: {tmp_path}/checkpoint}}\n'
    )
    path = tmp_path / "run" / "http.sock"
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock")
    await runtime.start()
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml"), "--http", str(path)) as serve:
        client = RuntimeClient(f"unix://{serve.socket}", timeout_s=LIMIT_S)
        kubelet = MiniKubelet(client)
        for number in range(creates):
            await kubelet.run_pod(sharer(f"pod-{number}"))

        connector = aiohttp.UnixConnector(str(path))
        async with (
            aiohttp.ClientSession("http://node", connector=connector) as session,
            session.get("/readyz") as answer,
        ):
            status, text = answer.status, await answer.text()
        assert (status, f"{tmp_path}/checkpoint" in text) == (503, True)

        await client.close()
        assert await serve.stop() == 0
    await runtime.stop()


async def grants(control: str) -> Any:  # noqa: ANN401 (JSON)
    """The answer of ``device-grants``, as soon as the daemon knows what runs."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return await asyncio.to_thread(ask, control, "device-grants", {})
            except CriproxyError as error:
                assert "does not know yet" in str(error)  # noqa: PT017 (any other answer is wrong)
            await asyncio.sleep(0.05)


async def say(serve: Serve, command: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
    """The answer of the daemon to a command, as the device plugin sends them."""
    return await asyncio.to_thread(ask, str(serve.control), command, arguments)


async def test_the_device_plugin_is_answered(tmp_path: Path) -> None:
    """The daemon's control socket knows what the device plugin asks and reports, and remembers an incident."""
    (tmp_path / "policy.yaml").write_text("policy: static\nreservedCpus: '0'\ndevices: {classes: [nvidia]}\n")
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock")
    await runtime.start()
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:
        assert await say(serve, "device-plugin", running=True) == {}
        assert "free_milli" in await say(serve, "free-cpus")
        assert await say(serve, "device-inventory", interval_s=20.0) == {"stale_after_s": 60.0, "version": __version__}
        lost = {
            "device_class": "nvidia",
            "card": "GPU-a",
            "since_s": 1700000000.0,
            "reason": "XID 79",
            "action": "stop",
        }
        assert await say(serve, "device-incident", **lost) == {"stored": True, "containers": []}
        assert await grants(str(serve.control)) == {"containers": [], "incidents": []}
        over = {"container_id": "c-1", "device_class": "nvidia", "card": "GPU-a", "quantity": "memory"}
        answer = await say(
            serve, "quota-incident", **over, used=9000.0, allowed=8192, since_s=1700000000.0, action="stop"
        )
        assert answer == {"stored": False, "act": False, "why": "the container is not running"}
        assert (await say(serve, "quota-incident", **over, over=False))["ended"] == 0
        assert await serve.stop() == 0
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:
        assert [each["card"] for each in (await say(serve, "devices"))["incidents"]] == ["GPU-a"]
        assert await say(serve, "device-incident", **{**lost, "healthy": True}) == {"stored": True, "ended": 1}
        assert await serve.stop() == 0
    await runtime.stop()


async def test_a_goodbye_that_nobody_heard_at_once(tmp_path: Path) -> None:
    """A daemon that stood still learns late that the device plugin was told to end, and does not miss it."""
    (tmp_path / "policy.yaml").write_text("policy: static\nreservedCpus: '0'\ndevices: {classes: [nvidia]}\n")
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock")
    await runtime.start()
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:
        await say(serve, "device-inventory", instance="one")
        serve.signal(signal.SIGSTOP)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.connect(str(serve.control))
            arguments = {"running": False, "instance": "one"}
            gone.sendall(json.dumps({"command": "device-plugin", "arguments": arguments}).encode() + b"\n")
        serve.signal(signal.SIGCONT)

        assert (await say(serve, "devices"))["device_plugin"] is None  # it came after the goodbye
        assert await serve.stop() == 0
    await runtime.stop()


async def test_a_restart_does_not_forget_why_the_device_plugin_does_not_start(tmp_path: Path) -> None:
    """Nothing may start it meanwhile, so that it would not say it again; a report ends it, also for the next start."""
    (tmp_path / "policy.yaml").write_text("policy: static\nreservedCpus: '0'\ndevices: {classes: [nvidia]}\n")
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock")
    await runtime.start()

    async def wrong(serve: Serve) -> list[str]:
        notices = (await say(serve, "status", check=True))["notices"]
        return [each["kind"] for each in notices if each["kind"].startswith("device-plugin")]

    async def written(text: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not (file := tmp_path / "state/device-plugin.json").exists() or text not in file.read_text():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.05)

    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:
        await say(serve, "device-plugin", running=True, instance="one", refused="replicas: abc")
        await written("replicas: abc")
        serve.signal(signal.SIGKILL)
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:
        assert await wrong(serve) == ["device-plugin-config"]
        await say(serve, "device-inventory", instance="two")
        assert await wrong(serve) == []
        await written('"refused": ""')
        serve.signal(signal.SIGKILL)
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:
        assert await wrong(serve) == []
        assert await serve.stop() == 0
    await runtime.stop()


@pytest.mark.slow  # a disk that fails is tried again after ten seconds
async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """`status --check` says that the files of pods with cards are out of date until they can be written; pods run."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/pods").write_text("in the way")
    (tmp_path / "policy.yaml").write_text(VGPUS)
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock")
    await runtime.start()
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:

        async def notices() -> list[str]:
            values = await asyncio.to_thread(ask, str(serve.control), "status", {"check": True})
            return [each["text"] for each in values["notices"] if each["kind"] == "pod-files"]

        client = RuntimeClient(f"unix://{serve.socket}", timeout_s=LIMIT_S)
        pod = pod_with("GPU-a/gpu-8g/0", "one")
        await MiniKubelet(client).run_pod(pod)
        async with asyncio.timeout(LIMIT_S):
            while not (found := await notices()):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.05)
        assert found == [
            f"the files of pods with cards are out of date: {tmp_path}/state/pods cannot be written: Not a directory"
        ]

        (tmp_path / "state/pods").unlink()
        async with asyncio.timeout(LIMIT_S):
            while await notices():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.05)
        found_file = json.loads((tmp_path / f"state/pods/{pod.uid}.json").read_text())
        assert found_file["containers"][0]["memory_limit_mib"] == 8192
        await client.close()
        assert await serve.stop() == 0
    await runtime.stop()
