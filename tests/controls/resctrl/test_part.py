"""Containers get shares of caches and memory bandwidth by groups of resctrl, and are as before when these go."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.controls.journal import Journal
from criproxy.controls.resctrl import part as module
from criproxy.controls.resctrl.part import RdtClasses
from criproxy.model.controls import (
    NOTHING_DESIRED,
    ContainerControls,
    Desired,
    Rdt,
    RdtAllocation,
    RdtClass,
    RdtPartition,
)
from criproxy.model.machine.resctrl import ROOT_CLASS
from tests.controls.resctrl.model import L3, MB, ResctrlModel

GOLD, SILVER, CGROUP = "criproxy.gold", "criproxy.silver", "kubepods/pod1/c"
WHOLE = ["L3:0=fffff;1=fffff", "MB:0=100;1=100"]


def rdt(*classes: str, l3: str = "50%", mb: str = "30%") -> Desired:
    """Return what is desired: classes with the same shares."""
    allocations = (RdtAllocation(resource="L3", share=l3), RdtAllocation(resource="MB", share=mb))
    return Desired(rdt=Rdt(classes=tuple(RdtClass(name=name, allocations=allocations) for name in classes)))


def controls(name: str, cgroup: str = CGROUP) -> ContainerControls:
    """Return the controls of a container of a class."""
    return ContainerControls(cgroup=cgroup, rdt_class=name)


@pytest.fixture(params=[True, False], ids=["new-kernel", "old-kernel"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> ResctrlModel:
    """A machine with a container of three threads, and one of somebody else."""
    model = ResctrlModel(tmp_path / "machine", tells=request.param)
    model.thread(1, "init")
    for number in (10, 11):
        model.thread(number, CGROUP, process=10)
    model.thread(12, f"{CGROUP}/inner", parent=10)
    model.thread(90, "kubepods/pod2/other")
    model.writes.clear()
    return model


@pytest.fixture
def part(kernel: ResctrlModel, tmp_path: Path) -> RdtClasses:
    """What is tested."""
    return again(kernel, tmp_path)


def again(kernel: ResctrlModel, tmp_path: Path) -> RdtClasses:
    """The same after a restart of the service."""
    (tmp_path / "state").mkdir(exist_ok=True)
    journal = Journal.open(tmp_path / "state", kernel.tree.root)
    journal.keep_containers({"c": controls("gold")})  # as before each call of a part
    return RdtClasses(kernel.tree.root, journal, kernel)


def test_a_class_has_a_group(kernel: ResctrlModel, part: RdtClasses) -> None:
    """With its schemata, of which only those are written that differ; the root group stays as it is."""
    assert part.configure(rdt("gold")) == []
    assert kernel.schemata(GOLD) == ["L3:0=3ff;1=3ff", "MB:0=30;1=30"]
    assert kernel.writes == [(f"{GOLD}/schemata", "L3:0=3ff;1=3ff"), (f"{GOLD}/schemata", "MB:0=30;1=30")]
    kernel.writes.clear()

    assert part.configure(rdt("gold", mb="40%")) == []
    assert kernel.writes == [(f"{GOLD}/schemata", "MB:0=40;1=40")]
    kernel.writes.clear()

    assert part.configure(rdt("gold", mb="40%")) == []
    assert kernel.writes == []
    assert kernel.schemata() == WHOLE
    assert part.drift == 0


def test_all_threads_of_a_container_are_in_its_group(kernel: ResctrlModel, part: RdtClasses) -> None:
    """Those that start later are born there, a process of an exec is found by a look; nobody else is touched."""
    part.configure(rdt("gold"))

    assert part.apply("c", controls("gold"), None) == []
    assert kernel.groups_by_thread() == {1: ".", 10: GOLD, 11: GOLD, 12: GOLD, 90: "."}

    kernel.thread(13, CGROUP, parent=10)
    kernel.thread(14, CGROUP)
    part.configure(rdt("gold"))
    kernel.writes.clear()
    assert part.look("c", controls("gold")) == []
    assert kernel.writes == [(f"{GOLD}/tasks", "14")]
    assert kernel.groups_by_thread() == {1: ".", 10: GOLD, 11: GOLD, 12: GOLD, 13: GOLD, 14: GOLD, 90: "."}
    assert part.drift == 0

    assert part.forget("c", controls("gold")) == []
    assert {*kernel.groups_by_thread().values()} == {"."}


def test_another_class_is_another_group(kernel: ResctrlModel, part: RdtClasses) -> None:
    """And none is the group in which the container was."""
    part.configure(rdt("gold", "silver"))
    part.apply("c", controls("gold"), None)

    assert part.apply("c", controls("silver"), controls("gold")) == []
    assert kernel.groups_by_thread()[12] == SILVER
    assert part.apply("c", controls(""), controls("silver")) == []

    assert kernel.groups_by_thread()[12] == "."


def test_no_thread_keeps_a_class_because_there_are_many(
    kernel: ResctrlModel, part: RdtClasses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look comes after the class has gone."""
    part.configure(rdt("gold"))
    part.apply("c", controls("gold"), None)
    monkeypatch.setattr(module, "MOST_AT_ONCE", 2)

    assert part.apply("c", controls(""), controls("gold")) == []

    assert {*kernel.groups_by_thread().values()} == {"."}


def test_a_look_repairs_what_others_have_changed(kernel: ResctrlModel, part: RdtClasses) -> None:
    """Threads that they have moved, values that they have written, and groups that they have removed, are counted."""
    part.configure(rdt("gold"))
    part.apply("c", controls("gold"), None)

    kernel.write(str(kernel.mount / "tasks"), "11")
    assert part.configure(rdt("gold")) == part.look("c", controls("gold")) == []
    assert kernel.groups_by_thread()[11] == GOLD
    assert part.drift == 1

    kernel.write(str(kernel.mount / GOLD / "schemata"), "L3:1=1")
    assert part.configure(rdt("gold")) == []
    assert kernel.schemata(GOLD)[0] == "L3:0=3ff;1=3ff"
    assert part.drift == 2

    kernel.remove(str(kernel.mount / GOLD))
    assert part.configure(rdt("gold")) == part.look("c", controls("gold")) == []
    assert kernel.schemata(GOLD)[0] == "L3:0=3ff;1=3ff"
    assert kernel.groups_by_thread()[10] == GOLD
    assert part.drift > 3


def test_groups_of_classes_that_are_gone_are_removed(kernel: ResctrlModel, part: RdtClasses) -> None:
    """Empty ones at once; a container has until the next time to get its new class. Those of others stay."""
    kernel.make(str(kernel.mount / "other"))
    part.configure(rdt("gold", "silver"))
    part.apply("c", controls("gold"), None)

    assert part.configure(rdt()) == []
    assert not (kernel.mount / SILVER).exists()
    assert kernel.groups_by_thread()[10] == GOLD

    assert part.configure(rdt()) == []
    assert not (kernel.mount / GOLD).exists()
    assert kernel.groups_by_thread()[10] == "."
    assert (kernel.mount / "other").exists()


def test_a_restarted_service_goes_on(kernel: ResctrlModel, part: RdtClasses, tmp_path: Path) -> None:
    """It writes nothing that is as it should be, and puts back what an earlier run has done."""
    part.configure(rdt("gold"))
    part.apply("c", controls("gold"), None)
    kernel.writes.clear()
    restarted = again(kernel, tmp_path)

    assert restarted.configure(rdt("gold")) == restarted.look("c", controls("gold")) == []
    assert kernel.writes == []
    assert restarted.drift == 0

    assert restarted.forget("c", controls("gold")) == restarted.put_back() == []
    assert {*kernel.groups_by_thread().values()} == {"."}
    assert not (kernel.mount / GOLD).exists()


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("monitored", [False, True])
def test_threads_go_back_to_the_group_of_others(
    kernel: ResctrlModel, part: RdtClasses, tmp_path: Path, *, monitored: bool, is_killed: bool
) -> None:
    """In which the runtime or another agent had put them, and to its group for monitoring; also after a kill."""
    kernel.make(str(kernel.mount / "other"))
    home = kernel.mount / "other"
    kernel.write(str(home / "tasks"), "10")
    if monitored and kernel.tree.root.joinpath("proc/10/cpu_resctrl_groups").exists():
        home = kernel.monitor("other", "pod1")
        kernel.write(str(home / "tasks"), "10")
    part.configure(rdt("gold"))
    part.apply("c", controls("gold"), None)
    assert kernel.group_of(10) == kernel.mount / GOLD

    part = again(kernel, tmp_path) if is_killed else part
    part.configure(rdt("gold"))
    part.look("c", controls("gold"))
    part.forget("c", controls("gold"))

    assert kernel.group_of(10) == home


def test_a_full_machine_is_said_and_harms_nobody(kernel: ResctrlModel, part: RdtClasses) -> None:
    """With how many groups there can be and who has them; the class gets its group when there is room."""
    kernel.make(str(kernel.mount / "other"))
    kernel.make(str(kernel.mount / "another"))
    full = (
        "RDT class silver has no control group: this machine can have 4, the root group among them, and all are in use,"
        " of which others have made 2: another, other"
    )

    assert part.configure(rdt("gold", "silver")) == [full]
    assert part.apply("c", controls("silver"), None) == [full]
    assert part.look("c", controls("silver")) == [full]
    assert kernel.groups_by_thread()[10] == "."
    assert kernel.schemata(GOLD)[0] == "L3:0=3ff;1=3ff"

    kernel.remove(str(kernel.mount / "other"))
    assert part.configure(rdt("gold", "silver")) == part.look("c", controls("silver")) == []
    assert kernel.groups_by_thread()[10] == SILVER


def test_too_many_classes_are_said_before(kernel: ResctrlModel, part: RdtClasses) -> None:
    """And those for which there is room get their groups."""
    said = part.configure(rdt("a", "b", "c", "d"))

    assert said[0] == ("4 RDT classes need as many control groups of resctrl; this machine has 3 beside the root group")
    assert len(said) == 2
    assert (kernel.mount / "criproxy.c").exists()


def test_what_resctrl_refuses_is_said_with_its_reason(kernel: ResctrlModel, part: RdtClasses) -> None:
    """The other resources are set."""
    kernel.info = {"L3": {**L3, "min_cbm_bits": "4"}, "MB": MB}

    said = part.configure(rdt("gold", l3="0x1"))

    path = kernel.mount / GOLD / "schemata"
    why = "Invalid argument (Need at least 4 bits in the mask)"
    assert said == [f"{path} does not take L3:0=1;1=1: {why}"]
    assert kernel.schemata(GOLD) == ["L3:0=fffff;1=fffff", "MB:0=30;1=30"]


def test_a_mistake_leaves_a_class_as_it_is(kernel: ResctrlModel, part: RdtClasses) -> None:
    """Its containers, too, and the other classes."""
    part.configure(rdt("gold"))
    part.apply("c", controls("gold"), None)

    assert part.configure(rdt("gold", l3="0,2")) == ["RDT class gold: 0,2 has a gap, which this machine does not take"]

    assert kernel.schemata(GOLD)[0] == "L3:0=3ff;1=3ff"
    assert kernel.groups_by_thread()[10] == GOLD


def test_what_the_kernel_rounds_is_not_written_again(kernel: ResctrlModel, part: RdtClasses) -> None:
    """It shows another value than the one that was written."""
    kernel.rounds_to = 25
    part.configure(rdt("gold"))
    assert kernel.schemata(GOLD)[1] == "MB:0=50;1=50"
    kernel.writes.clear()

    assert part.configure(rdt("gold")) == []

    assert kernel.writes == []
    assert part.drift == 0


def test_the_root_group_is_limited_by_its_class_and_put_back(
    kernel: ResctrlModel, part: RdtClasses, tmp_path: Path
) -> None:
    """As it was before the first change, also by another run of this program."""
    kernel.write(str(kernel.mount / "schemata"), "MB:0=90")
    before = kernel.schemata()
    assert part.configure(rdt(ROOT_CLASS)) == []
    assert kernel.schemata() == ["L3:0=3ff;1=3ff", "MB:0=30;1=30"]
    assert part.apply("c", controls(ROOT_CLASS), None) == part.forget("c", controls(ROOT_CLASS)) == []

    assert again(kernel, tmp_path).put_back() == []
    assert kernel.schemata() == before

    kernel.write(str(kernel.mount / "schemata"), "MB:0=80")
    assert again(kernel, tmp_path).put_back() == []
    assert kernel.schemata()[1] == "MB:0=80;1=100"


def test_the_root_group_is_put_back_when_its_class_goes(kernel: ResctrlModel, part: RdtClasses) -> None:
    """With the next classes."""
    part.configure(rdt(ROOT_CLASS))

    assert part.configure(rdt("gold")) == []

    assert kernel.schemata() == WHOLE


def test_a_machine_without_resctrl_is_told(tmp_path: Path) -> None:
    """Only if there are classes; a container hears it as well."""
    part = RdtClasses(tmp_path, Journal(tmp_path, ""))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/filesystems").write_text("nodev\tresctrl\n")
    why = "resctrl is not mounted: mount -t resctrl resctrl /sys/fs/resctrl"

    assert part.configure(NOTHING_DESIRED) == part.put_back() == []
    assert part.configure(rdt("gold")) == [why]
    assert part.apply("c", controls("gold"), None) == part.look("c", controls("gold")) == [why]
    assert part.forget("c", controls("gold")) == []
    assert part.machine() == {"resctrl": {"missing": why}}


def test_a_machine_without_resctrl_is_no_trouble_where_all_is_optional(tmp_path: Path) -> None:
    """Classes then set nothing there."""
    part = RdtClasses(tmp_path, Journal(tmp_path, ""))
    desired = rdt("gold")
    assert desired.rdt

    assert part.configure(Desired(rdt=replace(desired.rdt, optional=("L3", "MB")))) == []
    assert part.apply("c", controls("gold"), None) == part.look("c", controls("gold")) == []

    assert len(part.configure(Desired(rdt=replace(desired.rdt, optional=("L3",))))) == 1


def test_it_says_what_the_machine_can(kernel: ResctrlModel, part: RdtClasses) -> None:
    """Resources, and how many groups."""
    assert part.machine() == {"resctrl": {"resources": ["L3", "MB"], "groups": 4}}


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "x" * 300])
def test_a_name_that_is_none_of_a_folder_is_refused(kernel: ResctrlModel, part: RdtClasses, name: str) -> None:
    """Nothing is made elsewhere."""
    groups = kernel.groups()

    (said,) = part.configure(rdt(name))

    assert "its name cannot be one of a folder" in said
    assert kernel.groups() == groups


def test_threads_that_end_are_no_trouble(kernel: ResctrlModel, part: RdtClasses) -> None:
    """Between the listing and the write; and a container that is gone is none."""
    part.configure(rdt("gold"))
    kernel.before_write = once(lambda: kernel.end(10))

    assert part.apply("c", controls("gold"), None) == []

    assert kernel.groups_by_thread() == {1: ".", 11: GOLD, 12: GOLD, 90: "."}
    assert part.apply("d", controls("gold", "kubepods/gone"), None) == []
    assert part.look("d", controls("gold", "kubepods/gone")) == []
    assert part.forget("d", controls("gold", "kubepods/gone")) == []


def test_a_number_that_is_in_use_again_is_not_moved(kernel: ResctrlModel, part: RdtClasses) -> None:
    """The thread ends just before the write, and one elsewhere has its number: it stays where it was born."""
    kernel.make(str(kernel.mount / "other"))
    kernel.write(str(kernel.mount / "other/tasks"), "90")
    part.configure(rdt("gold"))

    def reuse() -> None:
        kernel.end(10)
        kernel.thread(10, "kubepods/pod2/other", parent=90)

    kernel.before_write = once(reuse)

    assert part.apply("c", controls("gold"), None) == []

    assert kernel.groups_by_thread() == {1: ".", 10: "other", 11: GOLD, 12: GOLD, 90: "other"}


def once(act: Callable[[], None]) -> Callable[[str, str], None]:
    """Act before the first number is written."""
    waiting = [act]

    def before_write(path: str, _text: str) -> None:
        if path.endswith("tasks") and waiting:
            waiting.pop()()

    return before_write


def test_a_look_at_many_containers_costs_little(tmp_path: Path) -> None:
    """It writes nothing, and reads each group once."""
    model = ResctrlModel(tmp_path / "machine")
    for number in range(50):
        model.thread(100 + number, f"kubepods/pod{number}/c")
    part = again(model, tmp_path)
    part.configure(rdt("gold"))
    for number in range(50):
        part.apply(str(number), controls("gold", f"kubepods/pod{number}/c"), None)
    model.writes.clear()
    model.reads = 0

    part.configure(rdt("gold"))
    for number in range(50):
        assert part.look(str(number), controls("gold", f"kubepods/pod{number}/c")) == []

    assert model.writes == []
    assert model.reads == 1


SHARES = st.one_of(
    st.integers(1, 100).map(lambda number: f"{number}%"),
    st.tuples(st.integers(0, 100), st.integers(1, 100)).map(lambda pair: f"{min(pair)}-{max(pair)}%"),
    st.integers(1, 0xFFFFF).map(hex),
)
PARTITIONS = st.lists(st.integers(1, 50).map(lambda number: f"{number}%"), min_size=1, max_size=2)


@given(PARTITIONS, st.lists(SHARES, min_size=1, max_size=2), st.integers(1, 100), st.integers(1, 3))
def test_the_kernel_takes_what_classes_come_to(
    tmp_path_factory: pytest.TempPathFactory, partitions: list[str], shares: list[str], mb: int, least: int
) -> None:
    """Whatever they ask: it is said before that it does not fit, or the kernel has nothing against it."""
    folder = tmp_path_factory.mktemp("machine")
    info = {"L3": {**L3, "min_cbm_bits": str(least), "num_closids": "9"}, "MB": {**MB, "num_closids": "9"}}
    kernel = ResctrlModel(folder / "machine", info)
    parts, bandwidth = list[RdtPartition](), RdtAllocation(resource="MB", share=f"{mb}%")
    for number, share in enumerate(partitions):
        parts.append(RdtPartition(name=f"p{number}", allocations=(RdtAllocation(resource="L3", share=share),)))
    classes = list[RdtClass]()
    for number, share in enumerate(shares):
        allocations = RdtAllocation(resource="L3", share=share), bandwidth
        classes.append(RdtClass(name=f"c{number}", partition=f"p{number % len(parts)}", allocations=allocations))

    said = again(kernel, folder).configure(Desired(rdt=Rdt(partitions=tuple(parts), classes=tuple(classes))))

    assert not [text for text in said if "schemata does not take" in text]
