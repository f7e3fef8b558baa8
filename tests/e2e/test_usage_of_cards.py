"""Real containers whose processes are found by their cgroups: from a reading to the status that the kubelet reads.

The readings are made up, and come from a file or a program; everything else is as on a node.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from criproxy.cri.translate import pid_in
from criproxy.devices.plan import OverQuota, PluginPlan, QuotaActions, QuotaPlan, UsageSource
from criproxy.emulator.containerd import PrivateContainerd
from criproxy.observe.failures import Failures
from criproxy.observe.tasks import Tasks
from criproxy.watcher.watch import Watcher
from tests.control.world import RecordingLog
from tests.e2e.device_nodes import WITHOUT_DRIVER, device_nodes
from tests.e2e.scene import Ran, Scene, exited, proxied
from tests.e2e.test_quota_of_cards import CARD, NAMES, OTHERS, POLICY, SAID, pod, run_on, status, why

pytestmark = pytest.mark.e2e

PERIOD_S = 0.2
QUOTA = {"period_s": PERIOD_S, "grace_s": 1.0, "samples": 3, "stop_timeout_s": 1.0}


@pytest.fixture
def card() -> Iterator[None]:
    """Make the device node of a card, and remove it."""
    with device_nodes({CARD: (WITHOUT_DRIVER, 7)}):
        yield


@pytest.fixture
async def cut(tmp_path: Path, containerd: PrivateContainerd, card: None) -> AsyncIterator[Scene]:
    """Criproxy in front of containerd, with rules about the class."""
    async with asyncio.timeout(120), proxied(tmp_path, containerd, POLICY) as scene:
        yield scene


class Backend:
    """What reports use, as a file that is written again and again, or as a program that prints it."""

    def __init__(self, folder: Path, source: str) -> None:
        self.file = folder / "usage.json"
        command = ("/bin/sh", "-c", f"while cat {self.file}; do sleep {PERIOD_S}; done")
        self.source = UsageSource(kind="e2e", source="file", file=str(self.file))
        if source == "command":
            self.source = UsageSource(kind="e2e", source="command", command=command)
        self._said = "{}"

    def say(self, **memory_mib: int) -> None:
        """Let processes use so much of the card from now on: ``p10=900``."""
        uses = [{"pid": int(name[1:]), "card": CARD, "memory_mib": mib} for name, mib in memory_mib.items()]
        self._said = json.dumps({"processes": uses}) + "\n"
        self.write()

    def write(self) -> None:
        """Replace the file, so that nobody reads a half of it."""
        new = self.file.with_suffix(".new")
        new.write_text(self._said)
        new.rename(self.file)

    async def run(self) -> None:
        """Write it in each period."""
        while True:
            self.write()
            await asyncio.sleep(PERIOD_S / 2)


@asynccontextmanager
async def watching(scene: Scene, backend: Backend, memory: OverQuota = "stop") -> AsyncIterator[Watcher]:
    """Run the watcher, as the device plugin does."""
    log = RecordingLog()
    tasks = Tasks(log, Failures())
    watcher = Watcher(str(scene.serve.control), Path("/"), log)
    quota: dict[str, Any] = {**QUOTA, "actions": QuotaActions(memory=memory)}
    watcher.use(PluginPlan(advertised=(), usage=(backend.source,), quota=QuotaPlan(**quota)))
    watcher.found({"e2e": {CARD: "0"}}, has_nvml=False)
    tasks.spawn("backend", backend.run())
    watcher.start(tasks)
    try:
        yield watcher
    finally:
        await tasks.stop()


async def started(scene: Scene) -> tuple[Mapping[str, Ran], Mapping[str, int]]:
    """Start four containers on one card; returns their first processes, too."""
    pods = {name: await scene.run(pod(name, number)) for number, name in enumerate(NAMES)}
    pids = {}
    for name, ran in pods.items():
        pid = pid_in((await scene.direct.container_status(ran.container_id, verbose=True)).info)
        assert pid is not None
        pids[name] = pid
    return pods, pids


def uses(pids: Mapping[str, int], greedy: int) -> dict[str, int]:
    """What the processes use."""
    return {f"p{pids[name]}": mib for name, mib in {"greedy": greedy, **OTHERS}.items()}


@pytest.mark.parametrize("source", ["file", "command"])
async def test_who_is_over_its_quota_is_stopped_once(cut: Scene, tmp_path: Path, source: str) -> None:
    """Although the watcher and criproxy are killed in between; its status says why, and the others run on."""
    pods, pids = await started(cut)
    backend = Backend(tmp_path, source)
    backend.say(**uses(pids, greedy=9000))
    async with watching(cut, backend):
        await cut.restart(signal.SIGKILL)
    async with watching(cut, backend):
        await exited(cut.direct, pods["greedy"].container_id)
        backend.say(**{f"p{pids[name]}": mib for name, mib in OTHERS.items()})
        await cut.restart(signal.SIGKILL)
        assert why(await status(cut, pods["greedy"])) == SAID

    await run_on(cut, pods)


async def test_the_process_that_uses_most_is_killed(cut: Scene, tmp_path: Path) -> None:
    """By the watcher, after the daemon has stored why."""
    pods, pids = await started(cut)
    backend = Backend(tmp_path, "command")
    backend.say(**uses(pids, greedy=9000))
    async with watching(cut, backend, "kill-process") as watcher:
        await exited(cut.client, pods["greedy"].container_id)
        seen = await status(cut, pods["greedy"])
        while not watcher.sample.kills:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
        assert watcher.sample.kills == 1

    assert (why(seen), seen.exit_code) == (SAID, 137)
    await run_on(cut, pods)
