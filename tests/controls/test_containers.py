"""Which containers are brought to what is desired, and what a crash, a full disk and a hanging file leave of it.

The part that sets the CPU burst with cgroup v1 stands for all: each container has one file of it.
"""

import asyncio
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.controls.containers import merged
from criproxy.controls.core import Controls
from criproxy.controls.cpu_burst import CpuBurst
from criproxy.controls.journal import CONTAINERS, Journal
from criproxy.errors import CriproxyError
from criproxy.model.controls import BlockIo, ContainerControls, CpuTuning, Desired, Irqs, Scheduling, Throttle
from tests.controls.trees import CPUS, KernelModel, Tree
from tests.daemons import until
from tests.disks import fill, free, small_disk

NICE = Scheduling(nice=1)
ONE = Throttle(devices=("/dev/sda",), read_bps=1)
TWO = Throttle(devices=("/dev/sdb",), read_bps=2)


class Node:
    """A machine with cgroup v1 and some containers, and the program without its socket."""

    def __init__(self, folder: Path, state: Path | None = None) -> None:
        self.tree, self.state = Tree(folder / "host"), state or folder / "state"
        (self.tree.root / "sys/fs/cgroup/cpuset").mkdir(parents=True)
        for name in "abc":
            self.tree.put(f"sys/fs/cgroup/cpu/{name}/tasks", "")
            self.tree.put(f"sys/fs/cgroup/cpu/{name}/cpu.cfs_quota_us", 100_000)
            self.tree.put(f"sys/fs/cgroup/cpu/{name}/cpu.cfs_burst_us", 0)
        self.tree.irqs(2, 2)
        self.tree.cpus(2)
        self.kernel = KernelModel()
        self._generation = 0
        self.start()

    def start(self) -> None:
        """Begin anew, as after a crash."""
        journal = Journal.open(self.state, self.tree.root)
        self.controls = Controls(self.tree.root, journal, (CpuBurst(self.tree.root, journal),), self.kernel)

    async def apply(self, *, look: bool = False, **bursts: int) -> list[str]:
        """Let containers have these bursts; return the troubles."""
        containers = {name: ContainerControls(cgroup=f"/{name}", burst_us=burst) for name, burst in bursts.items()}
        self._generation += 1
        self.controls.desire(Desired(containers=containers), self._generation)
        await self.controls._apply_containers(look)
        return [trouble.text for trouble in self.controls.answer().troubles]

    @property
    def bursts(self) -> str:
        """What all containers have, in their order."""
        return " ".join(self.tree.get(f"sys/fs/cgroup/cpu/{name}/cpu.cfs_burst_us") for name in "abc")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A machine with three containers."""
    return Node(tmp_path)


async def test_containers_get_and_lose_what_they_have(node: Node) -> None:
    """Each by itself; one that ends with its cgroup is no trouble."""
    assert await node.apply(a=10, b=20) == []
    assert node.bursts == "10 20 0"
    assert await node.apply(b=30, c=40) == []
    assert node.bursts == "0 30 40"
    for path in (node.tree.root / "sys/fs/cgroup/cpu/c").iterdir():
        path.unlink()
    (node.tree.root / "sys/fs/cgroup/cpu/c").rmdir()
    assert await node.apply() == []
    assert node.tree.get("sys/fs/cgroup/cpu/b/cpu.cfs_burst_us") == "0"
    assert node.controls.is_put_back


class Slow(CpuBurst):
    """Takes its time when the kernel reports the first process."""

    def __init__(self, host_root: Path, journal: Journal) -> None:
        super().__init__(host_root, journal)
        self.begun, self.go_on = Event(), Event()

    def apply(self, id: str, controls: ContainerControls, before: ContainerControls | None) -> list[str]:
        """Wait for the end of a pass."""
        if controls == before:
            self.begun.set()
            self.go_on.wait()
        return super().apply(id, controls, before)


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_class_that_goes_while_a_container_starts_is_put_back(tmp_path: Path, is_gone: bool) -> None:
    """Both are at work at a time, and the start ends last."""
    node = Node(tmp_path)
    journal = Journal.open(node.state, node.tree.root)
    slow = Slow(node.tree.root, journal)
    node.controls = Controls(node.tree.root, journal, (slow,), node.kernel)
    await node.apply(a=10)
    starting = asyncio.create_task(node.controls._arrived("a"))
    await until(slow.begun.is_set)

    await (node.apply() if is_gone else node.apply(a=20))
    slow.go_on.set()
    await starting

    assert node.bursts == ("0 0 0" if is_gone else "20 0 0")


async def test_a_restart_forgets_no_container(node: Node) -> None:
    """Before the first map all stays; then what it does not have any more is put back."""
    await node.apply(a=10, b=20)
    node.start()
    await node.controls._apply_containers(look=True)
    assert node.bursts == "10 20 0"

    await node.apply(b=20)
    assert node.bursts == "0 20 0"


@pytest.mark.parametrize("text", ["", "\xff\0", '{"boot": "before"}\n{"id": "a", "contr'])
async def test_a_power_failure_stops_no_service(node: Node, text: str) -> None:
    """Whatever it leaves of what was not synced: it is of another boot, and says nothing of this one."""
    (node.state / CONTAINERS).write_text(text, encoding="latin-1")
    node.start()
    assert await node.apply(a=10) == []


@pytest.mark.parametrize("line", ["", "\0\0", "[]", '{"id": "a"}', '{"controls": null}', '{"id": "a", "former": 1}'])
async def test_what_is_damaged_in_this_boot_is_told(node: Node, line: str) -> None:
    """Nobody but an administrator can say what containers had."""
    await node.apply(a=10)
    with (node.state / CONTAINERS).open("a") as stored:
        stored.write(f"{line}\n")
    with pytest.raises(CriproxyError, match=f"is damaged .{CONTAINERS}, line 4: "):
        node.start()


async def test_of_a_line_that_was_not_stored_whole_nothing_counts(node: Node) -> None:
    """It is the last one, and nothing of it was applied; what comes next is stored as always."""
    await node.apply(a=10)
    with (node.state / CONTAINERS).open("a") as stored:
        stored.write('{"id": "b", "controls": {"cgr')
    node.start()
    await node.apply(a=10, c=30)
    node.start()
    await node.apply()
    assert node.bursts == "0 0 0"


async def test_what_others_do_to_the_file_of_containers_loses_nothing(node: Node) -> None:
    """It is written anew then."""
    stored = node.state / CONTAINERS
    await node.apply(a=10)
    stored.unlink()
    await node.apply(a=10, b=20)
    stored.write_text("something else\n")
    await node.apply(a=10, b=20, c=30)
    node.start()
    await node.apply(b=20)
    assert node.bursts == "0 20 0"


async def test_the_file_of_containers_does_not_grow_with_what_has_ended(node: Node) -> None:
    """And it has at any time what counts."""
    sizes = list[int]()
    for turn in range(1, 1200):
        node.controls._journal.keep_containers({f"id {turn}": ContainerControls(cgroup="/a", burst_us=turn)})
        node.controls._journal.keep_former(f"id {turn}", "burst_us", turn)
        node.controls._journal.keep_containers({}, [f"id {turn}"])
        sizes.append((node.state / CONTAINERS).stat().st_size)
    assert max(sizes) < 200_000
    assert sum(after < before for before, after in pairwise(sizes)) >= 3
    assert Journal.open(node.state, node.tree.root).containers == {}


containers = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        ContainerControls,
        cgroup=st.just("/a"),
        burst_us=st.none() | st.integers(0, 3),
        rdt_class=st.sampled_from(("", "x")),
    ),
)


@given(
    steps=st.lists(
        st.tuples(containers, st.sets(st.sampled_from("abc")))
        | st.tuples(st.sampled_from("abc"), st.sampled_from(("burst_us", "rdt_class")), st.integers(0, 9))
    )
)
def test_a_journal_is_read_as_it_was_left(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    """At any time; what containers had counts as long as they have a class instead."""
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal.open(folder, folder)
    for step in steps:
        if len(step) == 2:
            journal.keep_containers(*step)
        elif getattr(journal.containers.get(step[0]), step[1], None) not in ("", None):
            journal.keep_former(*step)
        read = Journal.open(folder, folder)
        assert (read.containers, read.former) == (journal.containers, journal.former)


async def test_a_full_disk_leaves_new_containers_alone(tmp_path: Path) -> None:
    """It is said; they have their turn when there is space."""
    with small_disk(tmp_path / "disk") as disk:
        node = Node(tmp_path, disk / "state")
        await node.apply(a=10)
        fill(disk)
        more = dict.fromkeys(map("more-{}".format, range(100)), 1)  # the last block of a file may have room
        (trouble,) = await node.apply(look=False, a=10, b=20, **more)
        why = f"cannot be stored in {node.state}/{CONTAINERS}: No space left on device"
        assert trouble == f"what is applied to containers {why}"
        assert node.bursts == "10 0 0"
        free(disk)
        assert await node.apply(a=10, b=20) == []
        assert node.bursts == "10 20 0"


async def test_what_is_not_stored_is_not_applied(tmp_path: Path) -> None:
    """Also when the kernel reports the first process: after the end of the class, nobody would know of it."""
    with small_disk(tmp_path / "disk") as disk:
        node = Node(tmp_path, disk / "state")
        fill(disk)
        await node.apply(a=10)
        await node.controls._arrived("a")
        assert node.bursts == "0 0 0"
        free(disk)
        await node.apply(a=10)
        await node.controls._arrived("a")
        assert node.bursts == "10 0 0"


def test_what_was_there_before_is_stored_or_nothing_is_written(node: Node) -> None:
    """The error names the file in which it could not be stored, and not that of the cgroup."""
    journal, wanted = node.controls._journal, ContainerControls(cgroup="/a", burst_us=10)
    journal.keep_containers({"a": wanted})
    stored = node.state / CONTAINERS
    stored.unlink()
    stored.mkdir()

    with pytest.raises(CriproxyError, match=f"what was there before cannot be stored in {stored}: Is a directory"):
        CpuBurst(node.tree.root, journal).apply("a", wanted, None)
    assert node.bursts == "0 0 0"


async def test_a_container_whose_file_hangs_keeps_no_other_waiting(node: Node) -> None:
    """It is named, and gets its value when its file answers again."""
    pipe = node.tree.root / "sys/fs/cgroup/cpu/a/cpu.cfs_burst_us"
    pipe.unlink()
    os.mkfifo(pipe)

    (trouble,) = await node.apply(a=10, b=20)
    assert trouble.startswith("CPU burst: the kernel has not answered for")
    assert node.tree.get("sys/fs/cgroup/cpu/b/cpu.cfs_burst_us") == "20"
    driver = os.open(pipe, os.O_RDWR)
    pipe.unlink()
    node.tree.put("sys/fs/cgroup/cpu/a/cpu.cfs_burst_us", "0")
    os.write(driver, b"0\n")
    await until(lambda: not node.controls.answer().troubles)
    os.close(driver)
    assert node.controls.container_passes.pending, "another pass was asked for"
    await node.controls._apply_containers(look=False)
    assert node.bursts == "10 20 0"


class CountedBurst(CpuBurst):
    """Notes for which containers it is called."""

    def __init__(self, root: Path, journal: Journal) -> None:
        super().__init__(root, journal)
        self.calls = list[str]()

    def apply(self, id: str, controls: ContainerControls, before: ContainerControls | None) -> list[str]:
        """Note it."""
        self.calls.append(f"apply {id}")
        return super().apply(id, controls, before)

    def look(self, id: str, controls: ContainerControls) -> list[str]:
        """Note it."""
        self.calls.append(f"look {id}")
        return super().look(id, controls)

    def forget(self, id: str, before: ContainerControls) -> list[str]:
        """Note it."""
        self.calls.append(f"forget {id}")
        return super().forget(id, before)


async def test_a_part_is_called_for_containers_that_have_its_kind(tmp_path: Path) -> None:
    """Or had it: of thousands of containers, most have something for one or two parts."""
    node = Node(tmp_path)
    journal = Journal.open(node.state, node.tree.root)
    part = CountedBurst(node.tree.root, journal)
    node.controls = Controls(node.tree.root, journal, (part,), node.kernel)

    async def calls(*, look: bool = False, **found: ContainerControls) -> list[str]:
        part.calls.clear()
        node.controls.desire(Desired(containers=found), 1)
        await node.controls._apply_containers(look)
        return sorted(part.calls)

    nice, burst = (ContainerControls(cgroup="/a", **kind) for kind in ({"scheduling": NICE}, {"burst_us": 10}))
    assert await calls(a=nice, b=replace(burst, cgroup="/b")) == ["apply b"]
    assert await calls(a=nice, b=replace(burst, cgroup="/b"), look=True) == ["look b"]
    await node.controls._arrived("a")
    assert part.calls == ["look b"]
    assert await calls(a=burst) == ["apply a", "forget b"]
    assert await calls(a=nice) == ["apply a", "forget a"], "it loses its burst"
    assert await calls(a=nice) == []
    assert await calls() == []


async def test_a_trouble_is_over_when_what_fails_is_not_desired_any_more(node: Node) -> None:
    """At the next look, since the container has other kinds of controls."""
    path = node.tree.root / "sys/fs/cgroup/cpu/a/cpu.cfs_burst_us"
    await node.apply(a=10)
    path.unlink()
    path.mkdir()
    nice = Desired(containers={"a": ContainerControls(cgroup="/a", scheduling=NICE)})
    node.controls.desire(nice, 2)
    await node.controls._apply_containers(look=False)
    assert [str(path) in trouble.text for trouble in node.controls.answer().troubles] == [True]

    await node.controls._apply_containers(look=True)
    assert node.controls.answer().troubles == ()


async def test_what_others_change_is_repaired(node: Node) -> None:
    """And counted."""
    await node.apply(a=10)
    node.tree.put("sys/fs/cgroup/cpu/a/cpu.cfs_burst_us", "7")

    assert await node.apply(a=10, look=True) == []
    assert (node.bursts, node.controls.answer().drift) == ("10 0 0", 1)


async def test_a_new_container_reads_no_file_of_the_machine(node: Node) -> None:
    """Hundreds of interrupts and CPUs are looked at only when the layout changes, and by a timer."""
    layout = Desired(cpus={"gold": "1"}, tunings={"gold": CpuTuning(governor="performance")}, irqs=Irqs(cpus="0"))
    node.controls.desire(layout, 1)
    await node.controls._apply_layout(look=True)
    node.kernel.writes.clear()
    running = node.controls.layout_passes
    asked = running._asked

    containers = {"a": ContainerControls(cgroup="/a", burst_us=1)}
    node.controls.desire(Desired(containers=containers, cpus=layout.cpus, tunings=layout.tunings, irqs=layout.irqs), 2)
    assert running._asked == asked
    node.controls.desire(layout, 3)
    await node.controls._apply_layout(look=True)
    assert node.kernel.writes == []
    assert node.tree.get(f"{CPUS}/cpufreq/policy1/scaling_governor") == "performance"


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        pytest.param(ContainerControls(cgroup="/a", burst_us=1), None, None, id="nothing-before"),
        pytest.param(
            ContainerControls(cgroup="/a", burst_us=1),
            ContainerControls(cgroup="/a", burst_us=2, rdt_class="gold", scheduling=Scheduling(nice=1)),
            ContainerControls(cgroup="/a", burst_us=1, rdt_class="gold", scheduling=Scheduling(nice=1)),
            id="other-kinds",
        ),
        pytest.param(
            ContainerControls(cgroup="/a", block_io=BlockIo(throttles=(ONE,))),
            ContainerControls(cgroup="/a", block_io=BlockIo(weight=5, throttles=(ONE, TWO))),
            ContainerControls(cgroup="/a", block_io=BlockIo(weight=5, throttles=(ONE, TWO))),
            id="other-devices",
        ),
    ],
)
def test_during_a_change_all_is_known_that_may_be_set(
    new: ContainerControls, old: ContainerControls | None, expected: ContainerControls | None
) -> None:
    """After a crash in the middle, it can be put back."""
    assert merged(new, old) == (expected or new)
