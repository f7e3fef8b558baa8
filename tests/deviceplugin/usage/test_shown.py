"""The watcher beside a real daemon: what a program says of processes is what people and other programs see."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from criproxy.deviceplugin.usage.watcher import Watcher
from criproxy.devices.plugin.plan import PluginPlan, QuotaActions, QuotaPlan, UsageSource
from criproxy.node.devices.card_usage import PodFiles
from tests.api.test_usage import Asked, asked
from tests.deviceplugin.news import PATIENT_S
from tests.node.devices.test_create_checks_vgpu import pod_with

QUOTA = QuotaPlan(period_s=0.5, grace_s=0.1, samples=2, actions=QuotaActions(memory="annotate"))


def put_process(root: Path, pid: int, container: str) -> None:
    """Let a process be in a container."""
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    before = " ".join(["0"] * 18)
    (folder / "stat").write_text(f"{pid} (python) S {before} 100 0 0\n")
    (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod1/{container}\n")


async def until(node: Asked, wanted: str) -> dict[str, Any]:
    """What the daemon shows of the only container, as soon as its key *wanted* has a value."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            (shown,) = (await node("usage"))["containers"]
            if shown[wanted]:
                found: dict[str, Any] = shown
                return found
            await asyncio.sleep(0.02)


async def test_from_a_process_to_the_file_of_its_pod(tmp_path: Path) -> None:
    """Its use is that of its container; over the quota, that is in `usage` and in the file of the pod."""
    with TemporaryDirectory(prefix="w") as name:
        folder = Path(name)
        said = folder / "said"
        command = ("/bin/sh", "-c", f"while cat {said}; do sleep 0.05; done")
        usage = (UsageSource(kind="nvidia", source="command", command=command),)
        async with asked(folder) as node:
            key = await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
            put_process(folder, 10, key)
            use = {"pid": 10, "card": "GPU-a", "memory_mib": 9000, "cores_percent": 12.5}
            said.write_text(json.dumps({"processes": [use]}) + "\n")
            context, controller = node.world.controller.context, node.world.controller
            watcher = Watcher(str(folder / "control.sock"), folder, node.world.log)
            watcher.use(PluginPlan(advertised=(), usage=usage, quota=QUOTA))
            watcher.start(context.tasks)

            used = await until(node, "memory_mib")
            over = await until(node, "over_since")
            files = PodFiles(tmp_path, context, controller.devices.holdings, controller.card_usage, controller.known)
            await files.update()

    (path,) = (tmp_path / "pods").iterdir()
    (container,) = json.loads(path.read_text())["containers"]
    assert (used["memory_mib"], used["cores_percent"], used["memory_granted_mib"]) == (9000, 12.5, 8192)
    assert set(over["over_since"]) == {"memory"}
    assert container["over_since"] == over["over_since"]["memory"]
    (action,) = container["actions"]
    assert (action["action"], action["reason"]) == ("annotate", "9000 MiB used, 8192 MiB allowed on GPU-a")
    assert (container["used_mib"], container["sm_util"]) == (9000, 12.5)
