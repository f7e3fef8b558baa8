"""A container's program has the scheduling of its class at its first instruction: real containers of runc.

Created and started as CRI-O does it: the first process waits between, and the class is applied then.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from criproxy.controls.container_threads import ContainerThreads
from criproxy.controls.scheduling.calls import Attributes, Policy, read
from criproxy.controls.scheduling.threads import ThreadScheduling
from criproxy.model.controls import ContainerControls, Scheduling
from tests.controls.cgroups import Cgroup

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("runc"), reason="needs runc"),
    pytest.mark.e2e,
]

ROOT = Path("/")
LIMIT_S = 60.0
SCRIPT = """read -r mine </proc/self/stat
echo "$mine" >/first.part
/bin/busybox ionice -p $$ >>/first.part
/bin/busybox mv /first.part /first
/bin/busybox sleep 1000 &
wait"""
"""Reads its own scheduling before it does anything else, and starts another process."""
NICE, PRIORITY, POLICY = 18, 39, 40
"""Where these are in /proc/PID/stat, from 0; see proc_pid_stat(5)."""
RT_LIMIT = "cpu.rt_runtime_us"


class Container:
    """A container of runc."""

    def __init__(self, folder: Path, cgroup: Cgroup) -> None:
        self.folder, self.id, self.cgroup = folder, f"{cgroup.path}-c", f"{cgroup.path}/c"
        self._state = str(folder / "state")
        self._bundle()
        self.runc("create", "--bundle", str(folder), self.id)
        self.files = Cgroup.at(self.cgroup)

    def runc(self, *words: str) -> None:
        """Run a command of runc."""
        command = ["runc", "--root", self._state, *words]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=LIMIT_S)

    def _bundle(self) -> None:
        (self.folder / "rootfs/bin").mkdir(parents=True)
        shutil.copy(Path(shutil.which("busybox") or "/bin/busybox"), self.folder / "rootfs/bin/busybox")
        subprocess.run(["runc", "spec"], cwd=self.folder, check=True)
        path = self.folder / "config.json"
        spec = json.loads(path.read_text())
        spec["process"] |= {"args": ["/bin/busybox", "sh", "-c", SCRIPT], "terminal": False}
        spec["root"]["readonly"] = False
        spec["linux"]["cgroupsPath"] = f"/{self.cgroup}"
        path.write_text(json.dumps(spec))

    def start(self) -> list[str]:
        """Start it; return what it says of itself: the fields of its stat file, and its I/O class."""
        self.runc("start", self.id)
        first = self.folder / "rootfs/first"
        wait_for(first.exists)
        return first.read_text().splitlines()

    def threads(self) -> dict[int, Attributes]:
        """Return how all of its threads are scheduled."""
        return {number: read(number) for number in ContainerThreads(ROOT).numbers(self.cgroup)}


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what nothing tells of."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.005)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """A container that is created, and waits for its start."""
    with Cgroup() as pod:
        container = Container(tmp_path, pod)
        if (limit := pod.file(RT_LIMIT)).exists():
            limit.write_text("100000")
            container.files.file(RT_LIMIT).write_text("100000")
        yield container
        container.runc("delete", "--force", container.id)
        wait_for(lambda: not container.threads())


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        pytest.param(Scheduling(policy="batch"), Attributes(Policy(3)), id="batch"),
        pytest.param(Scheduling(policy="idle"), Attributes(Policy(5)), id="idle"),
        pytest.param(Scheduling(policy="fifo", priority=10), Attributes(Policy(1, priority=10)), id="fifo"),
        pytest.param(Scheduling(nice=-5), Attributes(nice=-5), id="nice"),
        pytest.param(Scheduling(io_class="idle"), Attributes(io=(3, 0)), id="io-idle"),
    ],
)
def test_a_program_begins_with_its_class(container: Container, scheduling: Scheduling, expected: Attributes) -> None:
    """What it starts has it as well, and a process of an exec after the next look; in the end all are as usual."""
    part, controls = ThreadScheduling(ROOT), ContainerControls(cgroup=container.cgroup, scheduling=scheduling)

    assert part.apply("c", controls, None) == []
    stat, io = container.start()

    fields = stat.split()
    policy, priority, nice = (int(fields[index]) for index in (POLICY, PRIORITY, NICE))
    assert (Policy(policy, priority), nice) == (expected.policy, expected.nice)
    assert io.startswith("idle") == (expected.io == (3, 0))
    wait_for(lambda: len(container.threads()) == 2)
    assert {*container.threads().values()} == {expected}
    assert part.look("c", controls) == []

    container.runc("exec", "--detach", container.id, "/bin/busybox", "sleep", "1000")
    wait_for(lambda: len(container.threads()) == 3)
    assert part.look("c", controls) == []
    assert {*container.threads().values()} == {expected}
    assert part.drift == 0

    assert part.forget("c", controls) == []
    assert {*container.threads().values()} == {Attributes()}
