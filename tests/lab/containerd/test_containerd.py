"""The private containerd: it runs pods, survives a restart, and leaves nothing behind however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeClient
from lab.containerd import leftovers
from lab.containerd.containerd import IMAGE, ContainerdError, PrivateContainerd, available, left_task
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec, container_config, sandbox_config
from tests.conftest import ROOT

pytestmark = pytest.mark.e2e
POD = PodSpec("pod", (ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=64 << 20),))


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := available():
        pytest.skip(reason)


@pytest.fixture
def containerd() -> Iterator[PrivateContainerd]:
    """Run a containerd for one test."""
    with PrivateContainerd() as running:
        yield running


async def run_pod(containerd: PrivateContainerd, *, parent: str | None = None, starts: bool = True) -> tuple[str, str]:
    """Run a pod and return the ids of its sandbox and its container.

    Args:
        containerd: runs it.
        parent: of its cgroups; empty, as crictl has it: containerd then uses a cgroup of its own for each container.
        starts: whether the container is started.
    """
    client = RuntimeClient(containerd.endpoint)
    kubelet = MiniKubelet(client, containerd.cgroups)
    pod = POD if parent is None else PodSpec("bare", POD.containers)
    config = sandbox_config(pod, containerd.cgroups.root)
    if parent is None:
        containerd.cgroups.make(config.linux.cgroup_parent)
    else:
        config.linux.cgroup_parent = parent
    sandbox_id = (await kubelet.call("RunPodSandbox", config=config)).pod_sandbox_id
    asked = container_config(pod, pod.containers[0], 1 << 30)
    created = await kubelet.call("CreateContainer", pod_sandbox_id=sandbox_id, config=asked, sandbox_config=config)
    container_id: str = created.container_id
    if starts:
        await kubelet.start(container_id)
    await client.close()
    return sandbox_id, container_id


def traces(directory: Path, *ids: str) -> list[str]:
    """Return what is left of a containerd: processes, mounts, cgroups, files."""
    words = [directory.name, *ids]
    found = [
        f"process {entry.name}"
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and any(word in _said_by(entry) for word in words)
    ]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if directory.name in line]
    for tree in Path("/sys/fs/cgroup").iterdir():
        found += [str(path) for word in words for path in (tree / word, tree / "k8s.io" / word) if path.exists()]
    return found + [str(path) for path in (directory,) if path.exists()]


def _said_by(process: Path) -> str:
    try:
        ended = "State:\tZ" in (process / "status").read_text()  # the machine's init has yet to collect it
        return "" if ended else (process / "cmdline").read_text() + (process / "cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_a_task_that_cri_does_not_know_of_is_removed_with_its_pod(containerd: PrivateContainerd) -> None:
    """What a start whose call was cut can leave: CRI calls the container not running, and refuses to remove it."""
    sandbox_id, container_id = await run_pod(containerd, starts=False)
    program = ["ctr", "--address", str(containerd.socket), "--namespace", "k8s.io"]
    await asyncio.to_thread(subprocess.run, [*program, "tasks", "start", "--detach", container_id], check=True)
    remove = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
    with pytest.raises(grpc.RpcError) as refused:
        containerd.call("RemovePodSandbox", remove, cri.RemovePodSandboxResponse)
    assert left_task(str(refused.value)) == container_id

    containerd.remove_pods()

    assert not containerd.call("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse).items
    containerd.end_task(container_id)


@pytest.mark.parametrize("dead", [False, True], ids=["in order", "after the daemon was killed"])
async def test_nothing_is_left_behind(containerd: PrivateContainerd, dead: bool) -> None:
    """Processes, mounts, cgroups, sockets and files go, even if containerd itself cannot help any more."""
    sandbox_id, container_id = await run_pod(containerd)
    others = await run_pod(containerd, parent="")
    shims = [leftovers.shim_socket(path) for path in (containerd.directory / leftovers.BUNDLES).iterdir()]
    assert traces(containerd.directory, container_id)
    if dead:
        os.kill(containerd.pid, signal.SIGKILL)

    for _ in range(2):
        containerd.stop()

    assert traces(containerd.directory, sandbox_id, container_id, *others) == []
    assert [path for path in shims if path and path.exists()] == []


RUNS_A_POD = """
import asyncio, sys
from tests.lab.containerd.test_containerd import run_pod
from lab.containerd.containerd import PrivateContainerd
containerd = PrivateContainerd()
containerd.start()
print(containerd.directory, *asyncio.run(run_pod(containerd)), flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_behind_by_a_process_that_is_killed() -> None:
    """Its containerd ends, with all pods."""
    command = [sys.executable, "-c", RUNS_A_POD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        name, *ids = process.stdout.readline().split()
        process.kill()
    until_s = time.monotonic() + 60.0
    while (left := traces(Path(name), *ids)) and time.monotonic() < until_s:
        time.sleep(0.05)  # nothing tells

    assert left == []


def test_a_failed_start_says_why_and_leaves_nothing() -> None:
    """The error has the end of the daemon's log."""
    second = PrivateContainerd()
    (second.directory / "root").write_text("not a folder")

    with pytest.raises(ContainerdError, match="not a directory"):
        second.start()

    assert traces(second.directory) == []
