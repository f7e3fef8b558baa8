"""The device plugin's watcher, criproxy and containerd together: who is over its quota is stopped once, and says why.

The class is one of our own, whose card is a device node without a driver. What processes use is written to a file,
which the watcher reads through a program.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.vgpu_profiles import Vgpu, annotations_of
from criproxy.devices.evidence.device_request import Response, joined
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.daemons import until
from tests.e2e.device_nodes import WITHOUT_DRIVER
from tests.e2e.scene import ALL, Ran, Scene, exited, proxied
from tests.nri.cannot import REASONS, cannot

CARD = "criproxyquota0"
"""Its id, as the device plugin offers it: the name of its node."""
NODES = {f"/dev/{CARD}": (WITHOUT_DRIVER, 7)}
RESOURCE = "criproxy.io/e2e-8g"
POLICY = f"""policy: static
reservedCpus: "{min(ALL)}"
devices:
  classes:
    - name: e2e
      resources: [test.criproxy.io/card]
      idFormat: index
      nodes: {{perDevice: ["/dev/criproxyquota{{index}}"]}}
  plugin:
    advertise: [{{class: e2e, resource: test.criproxy.io/card}}]
    profiles: [{{name: e2e-8g, class: e2e, memory: 8192Mi, count: 4}}]
"""
SAID = ("GPUMemoryQuotaExceeded", f"9000 MiB used, 8192 MiB allowed on {CARD}")
UNSAID = ("Error", "")
"""What containerd says by itself of who was killed."""
NAMES = ("greedy", "first", "second", "third")
OTHERS = {"first": 8000, "second": 8192, "third": 8704}
"""Within the quota, at it, and within the margin."""
QUOTA = "{period: 200ms, grace: 1s, samples: 3, stopTimeout: 1s}"


def pod(name: str, number: int) -> PodSpec:
    """A pod with one of the vGPUs, as the annotations of our Allocate say it."""
    vgpu = Vgpu(id=f"{CARD}/e2e-8g/{number}", card=CARD, profile="e2e-8g", memory_mib=8192, cores_percent=0)
    annotations = {**joined(Response(), RESOURCE, [vgpu.id]).annotations, **annotations_of(vgpu)}
    return PodSpec(name, (ContainerSpec("c0", IMAGE, annotations=annotations),))


async def status(scene: Scene, ran: Ran) -> api.ContainerStatus:
    """What the kubelet reads."""
    return (await scene.client.container_status(ran.container_id)).status


async def run_on(scene: Scene, pods: Mapping[str, Ran]) -> None:
    """Check that all but the greedy one run, and that nothing is said of them."""
    for name in OTHERS:
        seen = await status(scene, pods[name])
        assert seen == (await scene.direct.container_status(pods[name].container_id)).status
        assert seen.state == api.CONTAINER_RUNNING


def policy(file: Path) -> str:
    """The policy file with quotas, and use from a program that prints a file."""
    command = json.dumps(["/bin/sh", "-c", f"while cat {file}; do sleep 0.1; done"])
    return f"{POLICY}    usage: [{{class: e2e, from: command, command: {command}}}]\n    quota: {QUOTA}\n"


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


async def sentences(scene: Scene, name: str) -> list[str]:
    """What the history says of the quota of a container."""
    events = (await scene.serve.ask("explain", container=f"default/{name}/c0"))["events"]
    return [text for event in events if event["kind"] == "quota" for text in event["sentences"]]


async def test_watched(tmp_path: Path, containerd: PrivateContainerd, cards: None) -> None:
    """The greedy one of four containers is stopped once, although both criproxy and the plugin are killed meanwhile."""
    file = tmp_path / "use.json"
    async with asyncio.timeout(120), proxied(tmp_path, containerd, policy(file)) as scene:
        pods = {name: await scene.run(pod(name, number)) for number, name in enumerate(NAMES)}
        greedy, pids = pods["greedy"], {name: await scene.pid(ran.container_id) for name, ran in pods.items()}
        used = {pids["greedy"]: 9000, **{pids[name]: mib for name, mib in OTHERS.items()}}
        async with using(file, used):
            async with plugin(scene, tmp_path):
                await until(lambda: is_found(scene))  # its first process ignores SIGTERM: it runs for a second
            await scene.restart(signal.SIGKILL)
            async with plugin(scene, tmp_path):
                await exited(scene.client, greedy.container_id)
                ended = await status(scene, greedy)
                said = UNSAID if containerd.is_front and cannot(REASONS) else SAID
                assert (ended.reason, ended.message) == said
            await run_on(scene, pods)
        found = await sentences(scene, "greedy")
        assert found[-1] == f"criproxy has stopped it: {SAID[1]} (quota: stop)"
        assert len(found) == len(set(found))  # the line of the report may not have been on disk at the kill
