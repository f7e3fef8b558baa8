"""Random histories of processes whose PIDs others get: nobody but the process that was seen is ever touched.

The kernel is made up: /proc as files, and pidfds, each of which stays with its process.
"""

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.deviceplugin.usage.processes import Processes
from criproxy.deviceplugin.usage.quota_incidents import GONE, kill
from criproxy.devices.usage.values import Process, ProcessUse, Reading
from tests.deviceplugin.usage.hosts import container_id, put_process

FEW, MANY = 100, 10_000
PIDS = (50_000_001, 50_000_002)
"""Larger than those of real processes."""
STEP_S = 1.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, eq=False)
class Born:
    """A process; another one with the same PID is not equal to it."""

    pid: int
    start_ticks: int
    container: str

    @property
    def container_id(self) -> str:
        """That of its container; empty: it has none."""
        return container_id(self.container) if self.container else ""


@dataclass(slots=True)
class Kernel:
    """The processes that run, below *root* as in /proc."""

    root: Path
    now_s: float = 1000.0
    """On the monotonic clock."""
    running: dict[int, Born] = field(default_factory=dict)
    killed: list[Born] = field(default_factory=list)
    reuse: str | None = None
    """The container of a process that gets the next PID that is opened, right after that; None: nobody does."""
    _opened: dict[int, Born] = field(default_factory=dict)
    _ends: list[tuple[Born, int]] = field(default_factory=list)
    """The processes that were opened, each with the other end of the pipe that is its pidfd."""

    def start(self, pid: int, container: str) -> None:
        """Start a process with this PID in a container, or in none; the one that has it exits before."""
        self.exit(pid)
        self.now_s += STEP_S
        slept_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        born = self.running[pid] = Born(pid, int((self.now_s + slept_s) * _TICKS_PER_S), container)
        put_process(self.root, pid, container, born.start_ticks)

    def exit(self, pid: int) -> None:
        """Let the process with this PID exit, if there is one; its pidfds are readable from then on."""
        if gone := self.running.pop(pid, None):
            shutil.rmtree(self.root / f"proc/{pid}")
            for born, end in self._ends:
                if born is gone:
                    os.close(end)
            self._ends = [(born, end) for born, end in self._ends if born is not gone]

    def stop(self) -> None:
        """Let all processes exit."""
        for pid in [*self.running]:
            self.exit(pid)

    def pidfd_open(self, pid: int, flags: int = 0) -> int:
        """Open the process that has the PID now."""
        if pid not in self.running:
            raise ProcessLookupError
        descriptor, end = os.pipe2(os.O_CLOEXEC)
        self._opened[descriptor] = self.running[pid]
        self._ends.append((self.running[pid], end))
        if self.reuse is not None:
            self.start(pid, self.reuse)
        return descriptor

    def pidfd_send_signal(self, descriptor: int, number: int) -> None:
        """Kill the process that was opened, if it still runs."""
        assert number == signal.SIGKILL
        born = self._opened[descriptor]
        if self.running.get(born.pid) is not born:
            raise ProcessLookupError
        self.killed.append(born)
        self.exit(born.pid)


@dataclass(frozen=True, slots=True)
class Step:
    """What happens next."""

    what: str
    """start, exit, report (the driver takes a reading of one PID or, with 0, of all), locate (the watcher finds the
    containers), or kill; locate-reused and kill-reused: another process gets the PID in the middle of it."""
    pid: int
    container: str


def _steps(what: list[str], most: int) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        what=st.sampled_from(what),
        pid=st.sampled_from(PIDS),
        container=st.sampled_from(["web", "web", "batch", ""]),
    )
    return st.lists(step, min_size=most and 1, max_size=most)


_SOME = st.sampled_from([0, 0, 1, 2]).flatmap(lambda most: _steps(["start", "start", "exit"], most))


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Readings after which processes come and go, before and after their containers are found; then some are killed."""
    steps = draw(_steps(["start"], 3))
    for _ in range(draw(st.integers(1, 3))):
        report = Step("report", draw(st.sampled_from([0, *PIDS])), "")
        for _ in range(draw(st.integers(1, 2))):
            steps += [*draw(_SOME), report]
            steps += [*draw(_SOME), *draw(_steps(["locate", "locate", "locate-reused"], 1))]
        steps += [*draw(_SOME), *draw(_steps(["kill", "kill-reused"], 2))]
    return steps


class History:
    """A watcher beside the kernel, and who used the card when the driver said so."""

    def __init__(self, kernel: Kernel, tally: Counter[str]) -> None:
        self.kernel = kernel
        self.tally = tally
        self._processes = Processes(kernel.root, kernel.root)
        self._reading = Reading(kind="npu", at_s=kernel.now_s)
        self._users: dict[int, Born] = {}
        self._located: dict[int, tuple[ProcessUse, Born | None]] = {}

    def take(self, step: Step) -> None:
        """Take a step, and check what the watcher does."""
        match step.what:
            case "start":
                self.kernel.start(step.pid, step.container)
            case "exit":
                self.kernel.exit(step.pid)
            case "report":
                self._report([step.pid] if step.pid else PIDS)
            case "locate":
                self._locate(None)
            case "locate-reused":
                self._locate(step.container)
            case _:
                self._kill(step.pid, step.container if step.what == "kill-reused" else None)

    def _report(self, pids: Sequence[int]) -> None:
        """The driver may report PIDs whose processes have long exited."""
        self.kernel.now_s += STEP_S
        uses = tuple(ProcessUse(process=Process(pid=pid, start_ticks=0), card="a", memory_mib=1) for pid in pids)
        self._reading = Reading(kind="npu", at_s=self.kernel.now_s, processes=uses)
        self._users = dict(self.kernel.running)

    def _locate(self, reuse: str | None) -> None:
        self.kernel.reuse = reuse
        located = self._processes.with_known(self._reading)
        self.tally["known"] += located is not None
        if located is None:
            located = self._processes.with_containers(self._reading)
        self.kernel.reuse = None
        for use in located.processes:
            user, now = self._users.get(use.process.pid), self.kernel.running.get(use.process.pid)
            if now is not user or user is None:
                assert (use.process.start_ticks, use.container_id) == (0, "")
                self.tally["younger"] += now is not None
            else:
                assert (use.process.start_ticks, use.container_id) == (user.start_ticks, user.container_id)
            self._located[use.process.pid] = use, user

    def _kill(self, pid: int, reuse: str | None) -> None:
        if pid not in self._located:
            return
        use, user = self._located[pid]
        now, before = self.kernel.running.get(pid), len(self.kernel.killed)
        self.kernel.reuse = reuse
        found = kill(self._processes, use.process, use.container_id)
        self.kernel.reuse = None
        if now is not None and now is user and use.container_id and reuse is None:
            assert found == ""
            assert self.kernel.killed[before:] == [user]
            self.tally["killed"] += 1
        else:
            assert found == GONE
            assert self.kernel.killed[before:] == []
            self.tally["reused"] += use.process.start_ticks > 0 and now is not None and now is not user
            self.tally["reused-at-the-kill"] += use.container_id != "" and now is user and reuse is not None


def _run(steps: Sequence[Step], tally: Counter[str]) -> None:
    with TemporaryDirectory(prefix="p") as folder, pytest.MonkeyPatch.context() as patch:
        kernel = Kernel(Path(folder))
        patch.setattr(os, "pidfd_open", kernel.pidfd_open)
        patch.setattr(signal, "pidfd_send_signal", kernel.pidfd_send_signal)
        history = History(kernel, tally)
        for step in steps:
            history.take(step)
        kernel.stop()


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=[pytest.mark.thorough, pytest.mark.timeout(1800)])])
def test_no_other_process_is_touched(examples: int) -> None:
    """Neither is use attributed to one that started after a reading, nor is one killed that has got the PID."""
    tally = Counter[str]()

    @settings(max_examples=examples)
    @given(histories())
    def tried(steps: list[Step]) -> None:
        tally["histories"] += 1
        _run(steps, tally)

    tried()
    assert tally["histories"] >= examples
    assert (
        min(tally[each] for each in ("known", "younger", "killed", "reused", "reused-at-the-kill")) > examples // 50
    ), tally
