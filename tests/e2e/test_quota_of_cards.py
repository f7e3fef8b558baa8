"""vGPUs of real containers: who takes more than its share is ended once, and its status says why; the others run on.

The class is one of our own, whose card is a device node without a driver; the readings are made up.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.vgpu_profiles import Vgpu, annotations_of
from criproxy.devices.evidence.device_request import Response, joined
from criproxy.devices.plugin.plan import OverQuota, QuotaActions, QuotaPlan
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.e2e.device_nodes import WITHOUT_DRIVER
from tests.e2e.scene import ALL, Ran, Scene, exited, proxied
from tests.watchers import Watcher

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
NAMES = ("greedy", "first", "second", "third")
OTHERS = {"first": 8000, "second": 8192, "third": 8704}
"""Within the quota, at it, and within the margin."""


@pytest.fixture
async def cut(tmp_path: Path, containerd: PrivateContainerd, cards: None) -> AsyncIterator[Scene]:
    """Criproxy in front of containerd, with rules about the class."""
    async with asyncio.timeout(120), proxied(tmp_path, containerd, POLICY) as scene:
        yield scene


def pod(name: str, number: int) -> PodSpec:
    """A pod with one of the vGPUs, as the annotations of our Allocate say it."""
    vgpu = Vgpu(id=f"{CARD}/e2e-8g/{number}", card=CARD, profile="e2e-8g", memory_mib=8192, cores_percent=0)
    annotations = {**joined(Response(), RESOURCE, [vgpu.id]).annotations, **annotations_of(vgpu)}
    return PodSpec(name, (ContainerSpec("c0", IMAGE, annotations=annotations),))


def watcher(scene: Scene, memory: OverQuota = "stop") -> Watcher:
    """One that asks the daemon; who is stopped gets a second: the first process of a container ignores SIGTERM."""

    async def say(command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        return await scene.serve.ask(command, **arguments)

    return Watcher(say, kind="e2e", stop_timeout_s=1.0, plan=QuotaPlan(actions=QuotaActions(memory=memory)))


def why(status: api.ContainerStatus) -> tuple[str, str]:
    """Why it has ended."""
    return status.reason, status.message


async def status(scene: Scene, ran: Ran) -> api.ContainerStatus:
    """What the kubelet reads."""
    return (await scene.client.container_status(ran.container_id)).status


async def run(scene: Scene) -> dict[str, Ran]:
    """Four containers on one card."""
    return {name: await scene.run(pod(name, number)) for number, name in enumerate(NAMES)}


async def run_on(scene: Scene, pods: Mapping[str, Ran]) -> None:
    """Check that all but the greedy one run, and that nothing is said of them."""
    for name in OTHERS:
        seen = await status(scene, pods[name])
        assert seen == (await scene.direct.container_status(pods[name].container_id)).status
        assert seen.state == api.CONTAINER_RUNNING


async def test_a_process_is_killed(cut: Scene) -> None:
    """The daemon stores the incident before the watcher kills: whoever reads the status after the exit sees why."""
    pods = await run(cut)
    greedy, watching = pods["greedy"], watcher(cut, "kill-process")
    pid = await cut.pid(greedy.container_id)
    for at_s in range(8):
        await watching.read(at_s, greedy=9000, **OTHERS)
    assert watching.kills == [greedy.container_id]

    os.kill(pid, signal.SIGKILL)
    await exited(cut.client, greedy.container_id)

    seen = await status(cut, greedy)
    assert (why(seen), seen.exit_code) == (SAID, 137)
    await run_on(cut, pods)
