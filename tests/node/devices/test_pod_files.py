"""Files of pods with cards on a node: there while the pod is, and never in the way of a call."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.quota_commands import QuotaCommands
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.usage.values import CardUse, ClassUse, ContainerUse, UsageReport
from criproxy.node.devices import pod_files
from criproxy.node.devices.pod_files import PodFiles
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from lab.kubelet.kubelet import MiniKubelet
from tests.disks import fill, free, small_disk
from tests.gates import Gate
from tests.node.devices.test_create_checks_vgpu import RESOURCE, pod_with
from tests.node.devices.test_hints import host
from tests.node.world import FAST, World, sharer

RULES = DeviceRules(classes=(replace(NVIDIA, resources=(*NVIDIA.resources, RESOURCE)),))
VGPU = "GPU-a/gpu-8g/0"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real disk may take seconds for a write while other tests use it."""
    monkeypatch.setattr(pod_files, "TIMEOUT_S", 60.0)


class Kept:
    """The files of the controller of a world."""

    def __init__(self, world: World, state_dir: Path) -> None:
        self.world = world
        self.now_s = 0.0
        self.folder = state_dir / "pods"
        controller = world.controller
        usage = controller.card_usage
        self.files = PodFiles(
            state_dir, controller.context, controller.devices.holdings, usage, controller.known, lambda: self.now_s
        )

    async def look(self) -> dict[str, Any]:
        """Write what is due; the files by the name of the pod, whose containers are known to run."""
        await self.world.booked()
        await self.files.update()
        found = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]
        return {each["pod"]: each for each in found}

    def uses(self, container_id: str, memory_mib: int) -> None:
        """The watcher reports what a container uses of GPU-a."""
        card = CardUse(card="GPU-a", memory_mib=memory_mib, total_mib=16384, cores_percent=12.5)
        use = ContainerUse(
            container_id=container_id, kind="nvidia", card="GPU-a", memory_mib=memory_mib, cores_percent=12.5
        )
        nvidia = ClassUse(kind="nvidia", cards=(card,), containers=(use,))
        self.world.controller.card_usage.publish(UsageReport(at_s=1.0, period_s=1.0, classes=(nvidia,)))


@asynccontextmanager
async def kept(directory: Path, state_dir: Path | None = None) -> AsyncIterator[Kept]:
    """A node with two GPUs, and the files of its pods."""
    host(directory)
    async with World(directory, settings=replace(FAST, devices=RULES)) as world:
        await world.controller.known()
        yield Kept(world, state_dir or directory / "state")


async def test_a_pod_with_a_vgpu_has_a_file(tmp_path: Path) -> None:
    """It says what each container was given, from its create until RemovePodSandbox; other pods have none."""
    async with kept(tmp_path) as node:
        await node.world.run(sharer("web"))
        pod = pod_with(VGPU, "one")
        sandbox, ids = await node.world.kubelet.run_pod(pod)
        (found,) = (await node.look()).values()

        assert [path.name for path in node.folder.iterdir()] == [f"{pod.uid}.json"]
        (container,) = found["containers"]
        own = {"name": "main", "id": ids["main"], "state": "running", "class": "nvidia", "device": "GPU-a"}
        vgpu = {"resource": RESOURCE, "ids": [VGPU], "profile": "gpu-8g", "memory_limit_mib": 8192, "cores": 25}
        use: dict[str, object] = {"over_since": None, "over": [], "actions": [], "used_mib": None, "sm_util": None}
        assert container == {**own, **vgpu, **use}
        assert (found["namespace"], found["uid"]) == (pod.namespace, pod.uid)

        await node.world.kubelet.remove_pod(sandbox)
        assert await node.look() == {}


async def test_use_is_written_every_ten_seconds(tmp_path: Path) -> None:
    """What is used is as old as that; that a container is over its quota, and what is done, is written at once."""
    async with kept(tmp_path) as node:
        key = await node.world.run(pod_with(VGPU, "one"))
        await node.look()
        node.uses(key, 700)
        used = [(await node.look())["one"]["containers"][0]["used_mib"]]
        node.now_s = 10.0
        (container,) = (await node.look())["one"]["containers"]
        used.append(container["used_mib"])
        assert (used, container["sm_util"]) == ([None, 700], 12.5)

        node.now_s = 10.5
        node.uses(key, 9000)
        over = {"container_id": key, "device_class": "nvidia", "card": "GPU-a", "quantity": "memory"}
        report = {**over, "used": 9000, "allowed": 8192, "since_s": 1_700_000_000.0, "action": "annotate"}
        await QuotaCommands(node.world.controller).incident(report)
        (container,) = (await node.look())["one"]["containers"]
        assert (container["used_mib"], container["over"]) == (9000, ["memory"])
        assert container["over_since"] == "2023-11-14T22:13:20.000Z"
        assert [(each["action"], each["reason"]) for each in container["actions"]] == [
            ("annotate", "9000 MiB used, 8192 MiB allowed on GPU-a")
        ]


async def test_after_a_restart(tmp_path: Path) -> None:
    """The files of pods that are there are written anew, and those of pods that went meanwhile are removed."""
    async with kept(tmp_path) as node:
        sandbox, _ = await node.world.kubelet.run_pod(pod_with(VGPU, "gone"))
        await node.world.run(pod_with("GPU-b/gpu-8g/0", "stays"))
        assert set(await node.look()) == {"gone", "stays"}
        await node.world.stop_criproxy()
        await MiniKubelet(node.world.direct).remove_pod(sandbox)
        (node.folder / f"{pod_with('GPU-b/gpu-8g/0', 'stays').uid}.json").unlink()
        await node.world.start_criproxy()
        after = Kept(node.world, tmp_path / "state")
        await after.files.known()
        await node.world.until(lambda: sandbox not in node.world.controller.node.pods)

        found = await after.look()
        assert set(found) == {"stays"}
        assert found["stays"]["containers"][0]["memory_limit_mib"] == 8192


@pytest.mark.parametrize("uid", ["../../etc/passwd", "x" * 64, "a.json", "ü"])
async def test_a_uid_that_is_none(tmp_path: Path, uid: str) -> None:
    """A pod whose UID would mean something in a path has no file; the log says it once, and others have theirs."""
    async with kept(tmp_path) as node:
        await node.world.run(replace(pod_with(VGPU, "odd"), given_uid=uid))
        await node.world.run(pod_with("GPU-b/gpu-8g/0", "one"))
        await node.look()

        assert set(await node.look()) == {"one"}
        assert node.world.log.events().count("no file for a pod: its UID is invalid") == 1
        assert len(list(node.folder.iterdir())) == 1


async def test_a_disk_that_fails(tmp_path: Path) -> None:
    """It is one line of the log, one count for each try, and a sentence; afterwards all files are written."""
    with small_disk(tmp_path / "disk") as disk:
        async with kept(tmp_path, disk) as node:
            await node.look()
            fill(disk)
            await node.world.run(pod_with(VGPU, "one"))
            for _ in range(3):
                assert await node.look() == {}
            said = node.files.problem
            counted = node.world.counters.pod_file_failures
            lines = node.world.log.events().count("files of pods with cards cannot be written")
            free(disk)
            assert set(await node.look()) == {"one"}

            assert said == f"{disk / 'pods'} cannot be written: No space left on device"
            assert (counted, lines, node.files.problem) == (3, 1, "")


async def test_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls pass meanwhile, no further thread is begun, and what hung writes nothing when it comes back."""
    monkeypatch.setattr(pod_files, "TIMEOUT_S", 0.05)
    back, begun = Gate(), list[object]()
    async with kept(tmp_path) as node:
        write = node.files.write

        def hangs(*arguments: Any) -> None:  # noqa: ANN401 (those of `write_pods`)
            begun.append(arguments)
            back.wait()
            write(*arguments)

        node.files.write = hangs
        await node.world.run(pod_with(VGPU, "one"))
        assert await node.look() == {}
        await node.world.run(pod_with("GPU-b/gpu-8g/0", "two"))
        assert await node.look() == {}

        assert node.files.problem == f"writing to {node.folder} has not answered"
        name = f"look at writing to {node.folder}"  # as `Patience` calls its threads
        assert [each.name for each in threading.enumerate()].count(name) == 1
        back.set()
        node.files.write = write
        await node.world.poll(lambda: not node.files._patience.hanging)
        assert len(begun) == 1
        monkeypatch.setattr(pod_files, "TIMEOUT_S", 60.0)
        assert set(await node.look()) == {"one", "two"}


async def test_it_runs_beside_the_calls(tmp_path: Path) -> None:
    """The task writes a file after the create and removes it after the removal, without being asked."""
    async with kept(tmp_path) as node:
        task = asyncio.create_task(node.files.run())
        sandbox, _ = await node.world.kubelet.run_pod(pod_with(VGPU, "one"))
        await node.world.poll(lambda: any(node.folder.glob("*.json")))
        await node.world.kubelet.remove_pod(sandbox)
        await node.world.poll(lambda: not any(node.folder.glob("*.json")))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_node_without_rules(tmp_path: Path) -> None:
    """Where nothing is known of cards any more, the files from before are removed at the start."""
    (tmp_path / "state/pods").mkdir(parents=True)
    (tmp_path / "state/pods/u1.json").write_text("{}")
    async with World(tmp_path, policy=NonePolicy(Options())) as world:
        files = Kept(world, tmp_path / "state").files
        await files.known()
        await files.update()

    assert list((tmp_path / "state/pods").iterdir()) == []
