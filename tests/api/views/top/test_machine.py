"""Who owns which CPU, and in which order the CPUs of a machine stand."""

import pytest

from criproxy.api.views.top.machine import MANY, MARKS, Block, blocks_of, blocks_of_nodes, owners_of
from criproxy.api.views.top.snapshot import Row, Snapshot
from criproxy.simulate.machines import machine


def told(*rows: Row, allowed: str = "0-7") -> Snapshot:
    """An answer about eight CPUs, two of them reserved, one kept."""
    sets = {"allowed": frozenset(range(8)), "reserved": frozenset({0, 1}), "offline": frozenset({9})}
    return Snapshot(source="daemon", time="2026-01-01T00:00:00.000Z", sets=sets, kept=frozenset({7}), rows=rows)


def row(name: str, *cpus: int, state: str = "running") -> Row:
    """A container with exclusive CPUs."""
    return Row(id=name, title=name, state=state, cpus=frozenset(cpus), exclusive=frozenset(cpus))


def test_each_cpu_has_the_mark_of_its_owner() -> None:
    """Marks go by the first CPU of a container; the other CPUs say why they have no owner."""
    found = owners_of(told(row("late", 4, 5), row("early", 2), row("ended", 3, state="exited")), {})

    assert "".join(found.mark_of.get(cpu, "-") for cpu in range(10)) == "==a·bb·~-x"
    assert found.owner_of[4].id == "late"
    assert found.marks == {"early": "a", "late": "b"}


def test_a_container_keeps_its_mark() -> None:
    """Also when another one comes before it, which gets the mark that is free."""
    found = owners_of(told(row("new", 2), row("old", 4)), {"gone": "a", "old": "b"})

    assert found.marks == {"new": "a", "old": "b"}


def test_with_more_owners_than_marks_the_last_share_one() -> None:
    """And each gets one of its own as soon as there is one."""
    many = [row(f"c{number}", number) for number in range(len(MARKS) + 2)]
    found = owners_of(told(*many), {})
    later = owners_of(told(*many[1:]), found.marks)

    assert [found.marks[each.key] for each in many[-2:]] == [MANY, MANY]
    assert found.marks["c1"] == later.marks["c1"]
    assert later.marks[many[-2].key] == found.marks["c0"]


@pytest.mark.parametrize(
    ("nodes", "cores", "packages", "expected"),
    [
        pytest.param(1, 2, 1, [Block(0, 0, ((0, 2, 1, 3),))], id="threads-of-a-core-are-neighbours"),
        pytest.param(2, 1, 2, [Block(0, 0, ((0, 2),)), Block(1, 1, ((1, 3),))], id="sockets"),
    ],
)
def test_the_blocks_of_a_machine(nodes: int, cores: int, packages: int, expected: list[Block]) -> None:
    """One for each NUMA node, in order."""
    assert blocks_of(machine(nodes=nodes, cores=cores, threads=2, packages=packages)) == expected


def test_every_cpu_is_in_one_block() -> None:
    """Of a machine with 384 of them, too."""
    topology = machine(nodes=8, cores=24, threads=2, packages=2)

    assert sorted(cpu for block in blocks_of(topology) for cpu in block.cpus) == sorted(topology.online_cpus)


def test_without_the_machine_the_answer_gives_the_blocks() -> None:
    """NUMA nodes without CPUs are left out."""
    assert blocks_of_nodes({1: frozenset(), 0: frozenset({1, 0})}) == [Block(0, 0, ((0, 1),))]
