"""The device plugin's watcher, criproxy and containerd together: who is over its quota is stopped once, and says why.

What processes use is written to a file, which the watcher reads itself or through a program.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from criproxy.cli.client import ask
from criproxy.cri.translate import pid_in
from criproxy.emulator.containerd import PrivateContainerd
from tests.e2e.device_nodes import WITHOUT_DRIVER, device_nodes
from tests.e2e.scene import Ran, Scene, exited, proxied
from tests.e2e.test_quota_of_cards import CARD, NAMES, OTHERS, POLICY, SAID, pod, run_on, status, why

QUOTA = "{period: 200ms, grace: 1s, samples: 3, stopTimeout: 1s}"


@pytest.fixture
def card() -> Iterator[None]:
    """Make the device node of a card, and remove it."""
    with device_nodes({f"/dev/{CARD}": (WITHOUT_DRIVER, 7)}):
        yield


def policy(source: str, file: Path) -> str:
    """The policy file with quotas, and use from this source."""
    command = json.dumps(["/bin/sh", "-c", f"while cat {file}; do sleep 0.1; done"])
    what = f"file: {file}" if source == "file" else f"command: {command}"
    return f"{POLICY}    usage: [{{class: e2e, from: {source}, {what}}}]\n    quota: {QUOTA}\n"


@asynccontextmanager
async def using(file: Path, used: Mapping[int, int]) -> AsyncIterator[None]:
    """Let the file say again and again how much each process uses."""
    processes = [{"pid": pid, "card": CARD, "memory_mib": mib} for pid, mib in used.items()]

    async def write() -> None:
        while True:
            new = file.with_suffix(".new")
            new.write_text(json.dumps({"processes": processes}) + "\n")
            new.rename(file)
            await asyncio.sleep(0.05)

    writing = asyncio.create_task(write())
    try:
        yield
    finally:
        writing.cancel()


@asynccontextmanager
async def plugin(scene: Scene, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The device plugin, beside a kubelet that is not there."""
    (folder / "kubelet").mkdir(exist_ok=True)
    with (folder / "plugin.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", "device-plugin", "--config", str(scene.serve.policy)),
            *("--kubelet-dir", str(folder / "kubelet"), "--control-socket", str(scene.serve.control)),
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def pid_of(scene: Scene, ran: Ran) -> int:
    """The first process of a container."""
    pid = pid_in((await scene.direct.container_status(ran.container_id, verbose=True)).info)
    assert pid is not None
    return pid


async def told(scene: Scene, command: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
    """What the daemon answers."""
    return await asyncio.to_thread(ask, str(scene.serve.control), command, arguments)


async def is_found(scene: Scene) -> None:
    """Wait until the daemon knows a container over its quota."""
    while not (await told(scene, "device-grants"))["incidents"]:  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("source", ["file", "command"])
async def test_watched(tmp_path: Path, containerd: PrivateContainerd, card: None, source: str) -> None:
    """The greedy one of four containers is stopped once, although both criproxy and the plugin are killed meanwhile."""
    file = tmp_path / "use.json"
    async with asyncio.timeout(120), proxied(tmp_path, containerd, policy(source, file)) as scene:
        pods = {name: await scene.run(pod(name, number)) for number, name in enumerate(NAMES)}
        greedy, pids = pods["greedy"], {name: await pid_of(scene, ran) for name, ran in pods.items()}
        used = {pids["greedy"]: 9000, **{pids[name]: mib for name, mib in OTHERS.items()}}
        async with using(file, used):
            async with plugin(scene, tmp_path):
                await is_found(scene)  # the first process of a container ignores SIGTERM, so that it runs for a second
            await scene.restart(signal.SIGKILL)
            async with plugin(scene, tmp_path):
                await exited(scene.client, greedy.container_id)
                assert why(await status(scene, greedy)) == SAID
            await run_on(scene, pods)
        events = (await told(scene, "explain", container="default/greedy/c0"))["events"]
        found = [text for event in events if event["kind"] == "quota" for text in event["sentences"]]
        assert found[-1] == f"criproxy has stopped it: {SAID[1]} (quota: stop)"
        assert len(found) == len(set(found))  # the line of the report may not have been on disk at the kill
