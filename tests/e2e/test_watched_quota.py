"""The device plugin's watcher, criproxy and containerd together: who is over its quota is stopped once, and says why.

What processes use is written to a file, which the watcher reads itself or through a program.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from lab.containerd.containerd import PrivateContainerd
from lab.kubelet.kubelet import PodSpec
from tests.daemons import until
from tests.e2e.device_nodes import WITHOUT_DRIVER
from tests.e2e.scene import Ran, Scene, exited, proxied
from tests.e2e.test_quota_of_cards import CARD, NAMES, OTHERS, POLICY, SAID, pod, run_on, status, why

NODES = {f"/dev/{CARD}": (WITHOUT_DRIVER, 7)}
GRACE_S = 1
QUOTA = f"{{period: 200ms, grace: {GRACE_S}s, samples: 3, stopTimeout: 1s}}"
TRIES = 8
"""How often something else on the machine may delay the end of a container."""


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


async def is_found(scene: Scene) -> bool:
    """Whether the daemon knows a container over its quota."""
    return bool((await scene.serve.ask("device-grants"))["incidents"])


async def is_read(scene: Scene, ran: Ran) -> bool:
    """Whether the daemon knows what a container uses."""
    containers = (await scene.serve.ask("usage"))["containers"]
    return any(each["id"] == ran.container_id and each["memory_mib"] for each in containers)


async def sentences(scene: Scene, name: str) -> list[str]:
    """What the history says of the quota of a container."""
    events = (await scene.serve.ask("explain", container=f"default/{name}/c0"))["events"]
    return [text for event in events if event["kind"] == "quota" for text in event["sentences"]]


async def stops_of(scene: Scene, name: str) -> int:
    """How often criproxy has stopped a container."""
    return sum(text.startswith("criproxy has stopped it") for text in await sentences(scene, name))


async def stopped_after_s(scene: Scene, name: str, used: dict[int, int]) -> float:
    """Run a pod, let it use more than its quota, and return after how many seconds its container had ended."""
    ran = await scene.run(ending(name))
    pid = await scene.pid(ran.container_id)
    used[pid] = 8000
    await until(lambda: is_read(scene, ran))
    used[pid], began_s = 9000, time.time()
    await exited(scene.client, ran.container_id)
    del used[pid]
    seen = await status(scene, ran)
    stops = await until(lambda: stops_of(scene, name))  # it is noted when the stop is answered
    assert (why(seen), stops) == (SAID, 1)
    await scene.remove(ran)
    return seen.finished_at / 1e9 - began_s


async def test_stopped_in_time(tmp_path: Path, containerd: PrivateContainerd, cards: None) -> None:
    """Who is over its quota has ended two seconds after the grace period, if nothing else delays the machine."""
    file, used = tmp_path / "use.json", dict[int, int]()
    async with (
        asyncio.timeout(240),
        proxied(tmp_path, containerd, policy("file", file)) as scene,
        using(file, used),
        plugin(scene, tmp_path),
    ):
        others = {name: await scene.run(pod(name, number)) for number, name in enumerate(NAMES) if name in OTHERS}
        used.update({await scene.pid(others[name].container_id): mib for name, mib in OTHERS.items()})
        took_s = list[float]()
        while not took_s or (took_s[-1] > GRACE_S + 2 and len(took_s) < TRIES):
            took_s.append(await stopped_after_s(scene, f"greedy{len(took_s)}", used))
        await run_on(scene, others)

    assert GRACE_S <= min(took_s) <= GRACE_S + 2, took_s


async def test_watched(tmp_path: Path, containerd: PrivateContainerd, cards: None) -> None:
    """The greedy one of four containers is stopped once, although both criproxy and the plugin are killed meanwhile."""
    file = tmp_path / "use.json"
    async with asyncio.timeout(120), proxied(tmp_path, containerd, policy("command", file)) as scene:
        pods = {name: await scene.run(pod(name, number)) for number, name in enumerate(NAMES)}
        greedy, pids = pods["greedy"], {name: await scene.pid(ran.container_id) for name, ran in pods.items()}
        used = {pids["greedy"]: 9000, **{pids[name]: mib for name, mib in OTHERS.items()}}
        async with using(file, used):
            async with plugin(scene, tmp_path):
                await until(lambda: is_found(scene))  # its first process ignores SIGTERM: it runs for a second
            await scene.restart(signal.SIGKILL)
            async with plugin(scene, tmp_path):
                await exited(scene.client, greedy.container_id)
                assert why(await status(scene, greedy)) == SAID
            await run_on(scene, pods)
        found = await sentences(scene, "greedy")
        assert found[-1] == f"criproxy has stopped it: {SAID[1]} (quota: stop)"
        assert len(found) == len(set(found))  # the line of the report may not have been on disk at the kill
