"""The threads of a cgroup are scheduled as a class says, and as before when it goes: real threads, real cgroups."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from criproxy.controls.container_threads import ContainerThreads
from criproxy.controls.containers import merged
from criproxy.controls.scheduling import threads
from criproxy.controls.scheduling.calls import Attributes, Policy, read, steps
from criproxy.controls.scheduling.threads import ThreadScheduling
from criproxy.model.controls import ContainerControls, Scheduling
from tests.controls.cgroups import UNIFIED, Cgroup

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

ROOT = Path("/")
FIFO = Scheduling(policy="fifo", priority=10)
RT_LIMIT = "cpu.rt_runtime_us"
THREADS = """
import sys, threading
forever = threading.Event()
def start(count):
    numbers = []
    for _ in range(count):
        thread = threading.Thread(target=forever.wait, daemon=True)
        thread.start()
        numbers.append(thread.native_id)
    print(*numbers, flush=True)
threading.stack_size(64 << 10)
for line in sys.stdin:
    start(int(line))
"""
"""Starts as many threads as each line of its input says, and prints their numbers."""


class Program:
    """A program with threads in a cgroup."""

    def __init__(self, cgroup: Cgroup) -> None:
        self.process = cgroup.run(sys.executable, "-c", THREADS)
        self.pid = self.process.pid
        self.threads: list[int] = []

    def start_threads(self, count: int) -> list[int]:
        """Start threads; return their numbers."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        started = [int(word) for word in self.process.stdout.readline().split()]
        self.threads += started
        return started

    @property
    def all(self) -> dict[int, Attributes]:
        """How its threads are scheduled."""
        return {number: read(number) for number in (self.pid, *self.threads)}

    @property
    def ways(self) -> set[Attributes]:
        """The different ways in which its threads are scheduled."""
        return {*self.all.values()}


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    """A cgroup that may have real-time threads."""
    with Cgroup() as made:
        allow_real_time(made)
        yield made


def allow_real_time(cgroup: Cgroup) -> None:
    """Let threads of a cgroup be real-time ones, if that has to be allowed."""
    if (limit := cgroup.file(RT_LIMIT)).exists():
        limit.write_text("100000")


@pytest.fixture
def program(cgroup: Cgroup) -> Program:
    """A program with three threads."""
    started = Program(cgroup)
    started.start_threads(2)
    return started


@pytest.fixture
def part() -> ThreadScheduling:
    """What is tested."""
    return ThreadScheduling(ROOT)


def controls(cgroup: Cgroup, scheduling: Scheduling | None = None) -> ContainerControls:
    """Return the controls of a container with this cgroup."""
    return ContainerControls(cgroup=cgroup.path, scheduling=scheduling)


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        pytest.param(Scheduling(policy="batch"), Attributes(Policy(3)), id="batch"),
        pytest.param(Scheduling(policy="idle"), Attributes(Policy(5)), id="idle"),
        pytest.param(Scheduling(policy="batch", nice=7), Attributes(Policy(3), nice=7), id="batch-and-nice"),
        pytest.param(Scheduling(policy="idle", nice=7), Attributes(Policy(5), nice=7), id="idle-and-nice"),
        pytest.param(FIFO, Attributes(Policy(1, priority=10)), id="fifo"),
        pytest.param(Scheduling(policy="rr", priority=99), Attributes(Policy(2, priority=99)), id="rr"),
        pytest.param(Scheduling(nice=-5), Attributes(nice=-5), id="nice"),
        pytest.param(Scheduling(nice=19), Attributes(nice=19), id="nicest"),
        pytest.param(Scheduling(io_class="idle"), Attributes(io=(3, 0)), id="io-idle"),
        pytest.param(Scheduling(io_class="rt", io_priority=0), Attributes(io=(1, 0)), id="io-rt"),
        pytest.param(Scheduling(io_class="be", io_priority=7), Attributes(io=(2, 7)), id="io-be"),
        pytest.param(Scheduling(io_class="be"), Attributes(io=(2, 4)), id="io-without-level"),
        pytest.param(
            Scheduling(policy="fifo", priority=1, nice=-3, io_class="rt", io_priority=2),
            Attributes(Policy(1, priority=1), -3, (1, 2)),
            id="everything",
        ),
    ],
)
def test_every_thread_gets_it_and_has_before_what_it_had(
    cgroup: Cgroup, program: Program, part: ThreadScheduling, scheduling: Scheduling, expected: Attributes
) -> None:
    """Of the container's cgroup and of one below it; those that start later inherit it."""
    below = cgroup.nested("inner")
    allow_real_time(below)
    inner = Program(below)
    usual = program.ways

    assert part.apply("c", controls(cgroup, scheduling), None) == []

    assert program.ways == inner.ways == {expected}
    program.start_threads(1)
    assert program.ways == {expected}
    assert part.look("c", controls(cgroup, scheduling)) == []
    assert part.drift == 0

    assert part.forget("c", controls(cgroup, scheduling)) == []
    assert program.ways == inner.ways == usual == {Attributes()}


def test_what_a_class_leaves_out_is_unchanged(cgroup: Cgroup, program: Program, part: ThreadScheduling) -> None:
    """A thread's own nice value stays with another policy, and so does its policy with another I/O class."""
    os.setpriority(os.PRIO_PROCESS, program.pid, 3)

    part.apply("c", controls(cgroup, Scheduling(policy="batch")), None)
    assert read(program.pid) == Attributes(Policy(3), nice=3)

    part.apply("c", controls(cgroup, Scheduling(policy="fifo", priority=5)), None)
    part.apply("c", controls(cgroup, Scheduling(policy="batch")), None)
    assert read(program.pid) == Attributes(Policy(3), nice=3)


def test_another_class_replaces_the_first(cgroup: Cgroup, program: Program, part: ThreadScheduling) -> None:
    """What only the one before has set is as before, also after a restart of the service."""
    first = controls(cgroup, Scheduling(policy="batch", nice=5))
    part.apply("c", first, None)

    second = controls(cgroup, Scheduling(policy="idle"))
    assert part.apply("c", second, first) == []
    assert program.ways == {Attributes(Policy(5))}

    third = controls(cgroup, Scheduling(io_class="idle"))
    assert ThreadScheduling(ROOT).apply("c", third, second) == []
    assert program.ways == {Attributes(io=(3, 0))}


@pytest.mark.parametrize("was_applied", [False, True])
@pytest.mark.parametrize("third", [None, Scheduling(io_class="idle")], ids=["none", "another"])
def test_a_kill_while_a_class_replaces_another_leaves_nothing_of_it(
    cgroup: Cgroup, program: Program, part: ThreadScheduling, third: Scheduling | None, *, was_applied: bool
) -> None:
    """Before or after the threads have the second one: the journal has both."""
    first, second = (controls(cgroup, each) for each in (Scheduling(policy="batch", nice=5), Scheduling(policy="idle")))
    part.apply("c", first, None)
    if was_applied:
        part.apply("c", second, first)
    stored = merged(second, first)

    part = ThreadScheduling(ROOT)
    part.apply("c", second, stored)
    assert program.ways == {Attributes(Policy(5))}

    part.apply("c", first, second)
    part.forget("c", stored) if third is None else part.apply("c", controls(cgroup, third), stored)
    assert program.ways == {Attributes(io=(3, 0) if third else (0, 0))}


def test_what_somebody_else_has_set_since_is_not_put_back(
    cgroup: Cgroup, program: Program, part: ThreadScheduling
) -> None:
    """A thread that is no longer as the class had set it belongs to whoever changed it."""
    part.apply("c", controls(cgroup, Scheduling(nice=5)), None)
    os.setpriority(os.PRIO_PROCESS, program.pid, 9)

    part.forget("c", controls(cgroup, Scheduling(nice=5)))

    assert [each.nice for each in program.all.values()] == [9, 0, 0]


@pytest.mark.parametrize(
    "own", [Policy(1, priority=9), Policy(1, priority=10, flags=1)], ids=["lower", "reset-on-fork"]
)
def test_nothing_of_a_class_is_kept_by_changing_a_little_of_it(
    cgroup: Cgroup, program: Program, part: ThreadScheduling, own: Policy
) -> None:
    """A thread may lower its own priority and nice value without any right: that does not make them its own."""
    first, second = program.threads
    wanted = controls(cgroup, Scheduling(policy="fifo", priority=10, nice=-5))
    part.apply("c", wanted, None)
    for change in steps(program.pid, read(program.pid), Attributes(own, nice=-4)).values():
        change()
    for change in steps(first, read(first), Attributes(Policy(1, priority=11), nice=-6)).values():
        change()

    part.forget("c", wanted)

    assert read(program.pid) == read(second) == Attributes()
    assert read(first) == Attributes(Policy(1, priority=11), nice=-6), "the class has not given so much"


def test_threads_get_back_what_the_container_was_started_with(cgroup: Cgroup, part: ThreadScheduling) -> None:
    """It is what the process has that has started the first one, as the shim of a container."""
    files = " ".join(str(folder / "cgroup.procs") for folder in cgroup.folders)
    script = f"(for file in {files}; do echo 0 >$file; done; echo ready; exec sleep 1000) & wait"
    starter = subprocess.Popen(["nice", "-n", "4", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert starter.stdout
        assert starter.stdout.readline() == "ready\n"
        (number,) = ContainerThreads(ROOT).numbers(cgroup.path)
        part.apply("c", controls(cgroup, Scheduling(nice=12)), None)
        assert read(number).nice == 12

        part.forget("c", controls(cgroup, Scheduling(nice=12)))

        assert read(number).nice == 4
    finally:
        for each in ContainerThreads(ROOT).numbers(cgroup.path):
            os.kill(each, 9)
        starter.communicate()


def test_a_look_repairs_what_others_have_changed(cgroup: Cgroup, program: Program, part: ThreadScheduling) -> None:
    """And counts it; looks find it in any thread, sooner or later."""
    program.start_threads(5)
    wanted = controls(cgroup, Scheduling(nice=5))
    part.apply("c", wanted, None)
    os.setpriority(os.PRIO_PROCESS, program.threads[-1], 0)

    for _ in range(len(program.all)):
        assert part.look("c", wanted) == []

    assert program.ways == {Attributes(nice=5)}
    assert part.drift == 1


def test_a_look_finds_who_comes_from_outside(cgroup: Cgroup, program: Program, part: ThreadScheduling) -> None:
    """As a process of an exec, which inherits nothing of the container's first one; that is no drift."""
    wanted = controls(cgroup, Scheduling(policy="batch"))
    part.apply("c", wanted, None)
    late = Program(cgroup)
    late.start_threads(1)
    assert late.ways == {Attributes()}

    assert part.look("c", wanted) == []

    assert late.ways == {Attributes(Policy(3))}
    assert part.drift == 0


def test_a_service_that_restarts_changes_nothing_that_is_as_it_should_be(
    cgroup: Cgroup, program: Program, part: ThreadScheduling
) -> None:
    """And finds what has been changed meanwhile, with its first look."""
    wanted = controls(cgroup, Scheduling(nice=5))
    part.apply("c", wanted, None)
    os.setpriority(os.PRIO_PROCESS, program.threads[-1], 0)

    assert ThreadScheduling(ROOT).look("c", wanted) == []

    assert program.ways == {Attributes(nice=5)}


def test_children_have_nothing_with_reset_on_fork(cgroup: Cgroup, part: ThreadScheduling) -> None:
    """Only processes that come from outside have it: the first one, and those of an exec."""
    wanted = controls(cgroup, Scheduling(policy="fifo", priority=3, flags=("reset-on-fork",)))
    program = Program(cgroup)
    part.apply("c", wanted, None)
    program.start_threads(2)
    late = Program(cgroup)
    late.start_threads(1)

    assert part.look("c", wanted) == []

    fifo, usual = Attributes(Policy(1, priority=3, flags=1)), Attributes()
    assert [*program.all.values()] == [fifo, usual, usual]
    assert [*late.all.values()] == [fifo, usual]


@pytest.mark.skipif(UNIFIED, reason="cgroup v2 has no limit for real-time threads")
def test_what_the_kernel_refuses_is_said_until_it_takes_it(
    cgroup: Cgroup, program: Program, part: ThreadScheduling
) -> None:
    """With the reason; what it takes is set, and the rest once it may be."""
    cgroup.file(RT_LIMIT).write_text("0")
    program.start_threads(5)
    wanted = controls(cgroup, Scheduling(policy="fifo", priority=3, nice=-2))
    why = (
        "policy fifo, priority 3 cannot be set: Operation not permitted;"
        f" {cgroup.file(RT_LIMIT)} is 0: so many us of each second this container may have real-time threads"
    )

    assert part.apply("c", wanted, None) == [why]
    assert part.look("c", wanted) == [why]
    assert program.ways == {Attributes(nice=-2)}

    cgroup.file(RT_LIMIT).write_text("100000")
    assert part.look("c", wanted) == []
    assert program.ways == {Attributes(Policy(1, priority=3), nice=-2)}
    assert part.drift == 0


def test_a_deadline_needs_all_cpus(cgroup: Cgroup, part: ThreadScheduling) -> None:
    """A container whose CPUs are not all of the machine is told so; nothing else happens to it."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    cgroup.file("cpuset.cpus").write_text(str(cpus[0]))
    program = Program(cgroup)
    deadline = Scheduling(policy="deadline", runtime_us=1000, deadline_us=10_000, period_us=10_000)

    said = part.apply("c", controls(cgroup, deadline), None)

    why = "a thread may have a deadline only if it may run on all CPUs"
    assert said == [f"policy deadline cannot be set: Operation not permitted; {why}"]
    assert program.ways == {Attributes()}


def test_a_deadline_is_no_hindrance_to_new_threads(cgroup: Cgroup, part: ThreadScheduling) -> None:
    """They have none: the kernel would not let them start."""
    program = Program(cgroup)
    deadline = Scheduling(policy="deadline", runtime_us=100, deadline_us=10_000, period_us=20_000)

    assert part.apply("c", controls(cgroup, deadline), None) == []
    program.start_threads(1)
    assert part.look("c", controls(cgroup, deadline)) == []

    wanted = Policy(6, flags=1, runtime_us=100, deadline_us=10_000, period_us=20_000)
    assert [*program.all.values()] == [Attributes(wanted), Attributes()]
    assert part.drift == 0
    part.forget("c", controls(cgroup, deadline))
    assert program.ways == {Attributes()}


def test_a_container_that_is_gone_is_no_trouble(part: ThreadScheduling) -> None:
    """Its cgroup, or all of its threads."""
    with Cgroup() as cgroup:
        wanted = controls(cgroup, Scheduling(nice=5))
        assert part.apply("c", wanted, None) == part.look("c", wanted) == part.forget("c", wanted) == []

    assert part.apply("c", wanted, None) == part.look("c", wanted) == part.forget("c", wanted) == []


def test_many_threads_are_set_in_portions(
    cgroup: Cgroup, part: ThreadScheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call sets so many, and looks go on until all have it."""
    monkeypatch.setattr(threads, "MOST_AT_ONCE", 40)
    program = Program(cgroup)
    program.start_threads(99)
    wanted = controls(cgroup, Scheduling(nice=1))

    part.apply("c", wanted, None)
    assert sum(each.nice for each in program.all.values()) == 40
    part.look("c", wanted)
    assert sum(each.nice for each in program.all.values()) == 80
    part.look("c", wanted)

    assert program.ways == {Attributes(nice=1)}
    assert part.drift == 0


def test_no_thread_keeps_a_class_because_there_are_many(
    cgroup: Cgroup, part: ThreadScheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look comes after the class has gone."""
    program = Program(cgroup)
    program.start_threads(99)
    wanted = controls(cgroup, Scheduling(nice=1))
    part.apply("c", wanted, None)
    monkeypatch.setattr(threads, "MOST_AT_ONCE", 40)

    part.forget("c", wanted)

    assert program.ways == {Attributes()}


def test_a_container_does_not_escape_by_the_names_of_its_cgroups(cgroup: Cgroup, part: ThreadScheduling) -> None:
    """They may have every character but a line feed."""
    program = Program(cgroup.nested("a\x0c\x1cb\u2028\x85"))

    assert part.apply("c", controls(cgroup, Scheduling(nice=1)), None) == []

    assert program.ways == {Attributes(nice=1)}


def outsider(number: int) -> subprocess.Popen[bytes]:
    """Start a process with this number, which is free."""
    for _ in range(1000):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
        process = subprocess.Popen(["sleep", "1000"])
        if process.pid == number:
            return process
        process.kill()
        process.wait()
    raise AssertionError(f"no process got the number {number}")


def test_a_number_that_is_in_use_again_is_not_changed(
    cgroup: Cgroup, part: ThreadScheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends just before the call, and another process has its number: it keeps what it was born with."""
    victim = cgroup.run("sleep", "1000")
    strangers: list[subprocess.Popen[bytes]] = []
    set_priority = os.setpriority

    def late(which: int, number: int, nice: int) -> None:
        if not strangers:
            victim.kill()
            victim.communicate()
            strangers.append(outsider(number))
            set_priority(which, number, nice)
            assert read(number).nice == nice == 5
        else:
            set_priority(which, number, nice)

    monkeypatch.setattr(os, "setpriority", late)
    try:
        assert part.apply("c", controls(cgroup, Scheduling(nice=5)), None) == []

        assert [each.pid for each in strangers] == [victim.pid]
        assert read(victim.pid) == Attributes()
    finally:
        for each in strangers:
            each.kill()
            each.wait()


def test_a_pinned_thread_is_never_another_one(cgroup: Cgroup) -> None:
    """Once it has ended it is outside, also if its number is in use in the same container; others are not pinned."""
    found = ContainerThreads(ROOT)
    first = cgroup.run("sleep", "1000")
    with found.pinned(os.getpid(), cgroup.path) as outside:
        assert outside is None
    with found.pinned(first.pid, cgroup.path) as thread:
        assert thread
        assert thread.is_inside()
        first.kill()
        first.communicate()
        stranger = outsider(first.pid)
        try:
            assert not thread.is_inside()
            assert thread.parent_of_stranger() == os.getpid()
            for folder in cgroup.folders:
                with suppress(OSError):
                    (folder / "cgroup.procs").write_text(str(stranger.pid))
            assert not thread.is_inside()
            assert thread.parent_of_stranger() is None
        finally:
            stranger.kill()
            stranger.wait()


def test_a_cgroup_whose_name_begins_alike_is_another_one(cgroup: Cgroup) -> None:
    """No thread of it is ever pinned."""
    with Cgroup(f"{cgroup.path}0") as other:
        process = other.run("sleep", "1000")
        with ContainerThreads(ROOT).pinned(process.pid, cgroup.path) as thread:
            assert thread is None
