"""The daemon as a process on a node whose kubelet or driver hangs, and what the device plugin tells it."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from lab.emulator.runtime import EmbeddedRuntime
from tests.daemons import Serve, until
from tests.node.devices.test_create_checks_vgpu import pod_with
from tests.node.world import sharer

NVIDIA = "policy: static\nreservedCpus: '0'\ndevices: {classes: [nvidia]}\n"
VGPUS = """
policy: static
reservedCpus: '0'
devices:
  podresources: {socket: ''}
  checkpoint: ''
  classes: [nvidia]
  plugin: {profiles: [{name: gpu-8g, class: nvidia, memory: 8192Mi, cores: 25}]}
"""


@pytest.fixture(autouse=True)
async def runtime(tmp_path: Path) -> AsyncIterator[EmbeddedRuntime]:
    """The runtime behind the daemon."""
    async with EmbeddedRuntime(tmp_path / "runtime.sock") as serving:
        yield serving


async def test_a_file_that_hangs_holds_up_neither_creates_nor_the_end(tmp_path: Path) -> None:
    """Every create is answered, /readyz says what hangs, and SIGTERM ends the process although threads are stuck."""
    os.mkfifo(tmp_path / "checkpoint")
    devices = f'{{classes: [nvidia], podresources: {{socket: ""}}, checkpoint: {tmp_path}/checkpoint}}'
    path = tmp_path / "run" / "http.sock"
    async with Serve(tmp_path, "--http", str(path), policy=f"policy: none\ndevices: {devices}\n") as serve:
        async with serve.kubelet() as kubelet:
            for number in range(12):
                await kubelet.run_pod(sharer(f"pod-{number}"))

        connector = aiohttp.UnixConnector(str(path))
        async with (
            aiohttp.ClientSession("http://node", connector=connector) as session,
            session.get("/readyz") as answer,
        ):
            assert (answer.status, f"{tmp_path}/checkpoint" in await answer.text()) == (503, True)

        assert await serve.stop() == 0


async def test_a_goodbye_that_nobody_heard_at_once(tmp_path: Path) -> None:
    """A daemon that stood still learns late that the device plugin was told to end, and does not miss it."""
    async with Serve(tmp_path, policy=NVIDIA) as serve:
        await serve.ask("device-inventory", instance="one")
        serve.signal(signal.SIGSTOP)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.connect(str(serve.control))
            arguments = {"running": False, "instance": "one"}
            gone.sendall(json.dumps({"command": "device-plugin", "arguments": arguments}).encode() + b"\n")
        serve.signal(signal.SIGCONT)

        assert (await serve.ask("devices"))["device_plugin"] is None  # it came after the goodbye
        assert await serve.stop() == 0


async def test_a_restart_does_not_forget_why_the_device_plugin_does_not_start(tmp_path: Path) -> None:
    """Nothing may start it meanwhile, so that it would not say it again; a report ends it, also for the next start."""
    file = tmp_path / "state/device-plugin.json"

    async def wrong(serve: Serve) -> list[str]:
        return [kind for kind in await serve.notices() if kind.startswith("device-plugin")]

    async with Serve(tmp_path, policy=NVIDIA) as serve:
        await serve.ask("device-plugin", running=True, instance="one", refused="replicas: abc")
        await until(lambda: file.exists() and "replicas: abc" in file.read_text())
        serve.signal(signal.SIGKILL)
    async with Serve(tmp_path, policy=NVIDIA) as serve:
        assert await wrong(serve) == ["device-plugin-config"]
        await serve.ask("device-inventory", instance="two")
        assert await wrong(serve) == []
        await until(lambda: '"refused": ""' in file.read_text())
        serve.signal(signal.SIGKILL)
    async with Serve(tmp_path, policy=NVIDIA) as serve:
        assert (await wrong(serve), await serve.stop()) == ([], 0)


@pytest.mark.slow  # a disk that fails is tried again after ten seconds
async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """`status --check` says that the files of pods with cards are out of date until they can be written; pods run."""
    (tmp_path / "state").mkdir()
    (pods := tmp_path / "state/pods").write_text("in the way")
    pod = pod_with("GPU-a/gpu-8g/0", "one")
    async with Serve(tmp_path, policy=VGPUS) as serve:

        async def text() -> str:
            return (await serve.notices()).get("pod-files", "")

        async def is_well() -> bool:
            return not await text()

        async with serve.kubelet() as kubelet:
            await kubelet.run_pod(pod)
        beginning = "the files of pods with cards are out of date"
        assert await until(text) == f"{beginning}: {pods} cannot be written: Not a directory"

        pods.unlink()
        await until(is_well)
        assert json.loads((pods / f"{pod.uid}.json").read_text())["containers"][0]["memory_limit_mib"] == 8192
        assert await serve.stop() == 0
