"""The device plugin's watcher, criproxy and containerd together: who is over its quota is stopped once, and says why.

What processes use is written to a file, which the watcher reads itself or through a program.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.cli.client import ask
from criproxy.cri.translate import pid_in
from lab.containerd.containerd import PrivateContainerd
from lab.kubelet.kubelet import PodSpec
from tests.e2e.device_nodes import WITHOUT_DRIVER, device_nodes
from tests.e2e.scene import Ran, Scene, exited, proxied
from tests.e2e.test_quota_of_cards import CARD, NAMES, OTHERS, POLICY, SAID, pod, run_on, status, why

GRACE_S = 1
QUOTA = f"{{period: 200ms, grace: {GRACE_S}s, samples: 3, stopTimeout: 1s}}"
TRIES = 8
"""How often something else on the machine may delay the end of a container."""


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


def ending(name: str) -> PodSpec:
    """The first pod, with a process that ends when it is told to."""
    spec = pod(name, 0)
    command = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
    return replace(spec, containers=(replace(spec.containers[0], command=command),))


@asynccontextmanager
async def using(file: Path, used: Mapping[int, int]) -> AsyncIterator[None]:
    """Let the file say again and again how much each process uses; *used* may change meanwhile."""

    async def write() -> None:
        while True:
            processes = [{"pid": pid, "card": CARD, "memory_mib": mib} for pid, mib in used.items()]
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


async def is_read(scene: Scene, ran: Ran) -> None:
    """Wait until the daemon knows what a container uses."""
    while not any(  # noqa: ASYNC110 (nothing tells)
        each["id"] == ran.container_id and each["memory_mib"] for each in (await told(scene, "usage"))["containers"]
    ):
        await asyncio.sleep(0.05)


async def stops_of(scene: Scene, name: str) -> int:
    """How often criproxy has stopped a container."""
    events = (await told(scene, "explain", container=f"default/{name}/c0"))["events"]
    texts = [text for event in events if event["kind"] == "quota" for text in event["sentences"]]
    return sum(text.startswith("criproxy has stopped it") for text in texts)


async def stopped_after_s(scene: Scene, name: str, used: dict[int, int]) -> float:
    """Run a pod, let it use more than its quota, and return after how many seconds its container had ended."""
    ran = await scene.run(ending(name))
    pid = await pid_of(scene, ran)
    used[pid] = 8000
    await is_read(scene, ran)
    used[pid], began_s = 9000, time.time()
    await exited(scene.client, ran.container_id)
    del used[pid]
    seen = await status(scene, ran)
    while not (stops := await stops_of(scene, name)):  # noqa: ASYNC110 (it is noted when the stop is answered)
        await asyncio.sleep(0.05)
    assert (why(seen), stops) == (SAID, 1)
    await scene.remove(ran)
    return seen.finished_at / 1e9 - began_s


@pytest.mark.parametrize("source", ["file", "command"])
async def test_stopped_in_time(tmp_path: Path, containerd: PrivateContainerd, card: None, source: str) -> None:
    """Who is over its quota has ended two seconds after the grace period, if nothing else delays the machine."""
    file, used = tmp_path / "use.json", dict[int, int]()
    async with (
        asyncio.timeout(240),
        proxied(tmp_path, containerd, policy(source, file)) as scene,
        using(file, used),
        plugin(scene, tmp_path),
    ):
        others = {name: await scene.run(pod(name, number)) for number, name in enumerate(NAMES) if name in OTHERS}
        used.update({await pid_of(scene, others[name]): mib for name, mib in OTHERS.items()})
        took_s = list[float]()
        while not took_s or (took_s[-1] > GRACE_S + 2 and len(took_s) < TRIES):
            took_s.append(await stopped_after_s(scene, f"greedy{len(took_s)}", used))
        await run_on(scene, others)

    assert GRACE_S <= min(took_s) <= GRACE_S + 2, took_s


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
