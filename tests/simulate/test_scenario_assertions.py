"""The assertions of scenario files: what each holds for, and what it says otherwise."""

from pathlib import Path

import pytest

from criproxy.config.document import parse
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.simulate.scenario.assertions import OF_ONE, OF_SEVERAL, read_assertion
from criproxy.simulate.scenario.machine import read_machine
from criproxy.simulate.scenario.place import At, Wrong
from criproxy.simulate.scenario.seen import Placed, Seen


def at(text: str) -> At:
    """YAML as a value that knows its place."""
    document = parse(text)
    return At(document, (), document.data)


def machine() -> Topology:
    """Two packages, of two dies and one; nodes of two cores of two threads; memory only in node 3."""
    return read_machine(
        at("""
threads: consecutive
l3: 2
nodes:
  0: {cpus: 0-3, pkg: 0, die: 0, mem: 1G}
  1: {cpus: 4-7, pkg: 0, die: 1, mem: 1G}
  2: {cpus: 8-11, pkg: 1, die: 0, mem: 1G}
  3: {kind: pmem, mem: 1G}
""")
    )


PLACES = {"a": ("0-2", "0", "0-2"), "b": ("4-5", "1,3", ""), "c": ("5-8", "1-2", ""), "d": ("4-5", "0", "")}
"""CPUs, memory and own CPUs of four containers."""
SEEN = Seen(
    machine(),
    {
        name: Placed(parse_cpuset(cpus), parse_cpuset(mems), parse_cpuset(own))
        for name, (cpus, mems, own) in PLACES.items()
    },
)


def told(text: str) -> str:
    """What is not as the assertion has it; empty if all is."""
    return "; ".join(filter(None, (check(SEEN) for check in read_assertion(at(text)).checks)))


@pytest.mark.parametrize(
    "text",
    [
        "{c: a, cpus: 0-2}",
        "{c: a, mems: 0}",
        "{c: c, nodes: 1-2, packages: 0-1}",
        "{c: a, cpus_in: 0-3}",
        "{c: a, cpus_any: ['1', 0-2]}",
        "{c: a, includes: '0,2'}",
        "{c: a, excludes: 3-11}",
        "{c: a, n_cpus: 3, n_cores: 2, n_l3: 2, n_nodes: 1, n_dies: 1, n_pkgs: 1, n_packages: 1, n_mems: 1}",
        "{c: c, n_cpus: '>=4', n_cores: '>2', n_nodes: '<=2', n_dies: 2, n_pkgs: '<3', n_mems: 2}",
        "{c: c, share_of: 5-6, n: 2}",
        "{c: a, mems_by_pkg: {0: 0, 1: 2}}",
        "{c: b, mems_by_pkg: {0: '1,3', 1: 2}}",
        "{disjoint: [a, b], what: cpus}",
        "{disjoint: [a, b]}",
        "{disjoint: [a, b], what: nodes}",
        "{disjoint: [a, b], what: dies, only: nri}",
        "{equal: [b, d], what: cpus}",
        "{equal: [a, b, d], what: packages}",
        "{not_equal: [b, d], what: mems}",
        "{unshared: a, n: 3}",
        "{unshared: b, n: 0}",
        "{unshared: c, n: '>=3'}",
        "{one_of_sizes: [a, b, c], sizes: [4, 2, 3]}",
        "{sizes_sorted: [d, c], sizes: [2, 4]}",
        "{total: [b, c, d], n_cpus: 5}",
    ],
)
def test_what_holds(text: str) -> None:
    """An assertion that holds says nothing."""
    assert not told(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{c: a, cpus: 0-1}", "a: cpus should be 0-1, are 0-2"),
        ("{c: b, mems: 1}", "b: mems should be 1, are 1,3"),
        ("{c: c, nodes: 1}", "c: nodes should be 1, are 1-2"),
        ("{c: a, cpus_in: 1-3}", "a: cpus should be among 1-3, are 0-2"),
        ("{c: a, cpus_any: ['1', '2']}", "a: cpus should be 1 or 2, are 0-2"),
        ("{c: a, includes: '3'}", "a: cpus should include 3, are 0-2"),
        ("{c: a, excludes: '2-3'}", "a: cpus should be none of 2-3, are 0-2"),
        ("{c: a, n_cpus: '>3'}", "a: cpus should be >3 in number, are 3 (CPUs 0-2)"),
        ("{c: b, n_mems: 1}", "b: mems should be 1 in number, are 2 (1,3)"),
        ("{c: c, share_of: 5-7, n: 2}", "c: 2 of its cpus should be of 5-7, 3 are (5-7)"),
        ("{c: b, mems_by_pkg: {0: 0, 1: 2}}", "b: in package 0 mems should be 0, are 1,3"),
        ("{disjoint: [a, b, c], what: cpus}", "b and c should share no cpus, and share 5"),
        ("{disjoint: [b, c], what: dies}", "b and c should share no dies, and share (0, 1)"),
        ("{equal: [b, c], what: nodes}", "b and c should have the same nodes, and have 1 and 1-2"),
        ("{not_equal: [b, d], what: cpus}", "b and d should have different cpus, and both have 4-5"),
        ("{unshared: c, n: 4}", "c: 4 of its cpus should be its own, 3 are (6-8)"),
        ("{one_of_sizes: [a, b], sizes: [3, 3]}", "a, b should have 3, 3 cpus, and have 2, 3"),
        ("{total: [b, c, d], n_cpus: 4}", "b, c, d should have 4 cpus in all, and have 5 (4-8)"),
    ],
)
def test_what_does_not_hold(text: str, expected: str) -> None:
    """It says what is expected and what is."""
    assert told(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{c: a}", "says nothing about a"),
        ("{c: a, cpu: 1}", "there is no assertion 'cpu'; did you mean 'cpus'?"),
        ("{c: a, disjoint: [b]}", "there is no assertion 'disjoint'"),
        ("{disjont: [a, b]}", "did you mean 'disjoint'?"),
        ("{}", "there is no assertion this"),
        ("{disjoint: [a], equal: [b]}", "there is no assertion"),
        ("{disjoint: [], what: cpus}", "names no container"),
        ("{disjoint: [a, b], what: cpu}", "did you mean 'cpus'?"),
        ("{disjoint: [a, b], n: 1}", "unknown key 'n'"),
        ("{unshared: a}", "'n' is missing"),
        ("{total: [a]}", "'n_cpus' is missing"),
        ("{c: a, share_of: 0-3}", "needs n"),
        ("{c: a, n_cpus: many}", "must be a number, such as 2 or '>=2'"),
        ("{c: a, cpus: 3-1}", "runs backwards"),
        ("{c: a, cpus: [1]}", "must be a text, not a list"),
        ("{c: a, cpus: 1, only: cri}", "must be one of crirm, nri"),
        ("{c: a, mems_by_pkg: {x: 1}}", "must be the number of a package"),
    ],
)
def test_assertions_that_cannot_be_read(text: str, said: str) -> None:
    """An unknown kind or a value that makes no sense is named."""
    with pytest.raises(Wrong) as wrong:
        read_assertion(at(text))

    assert said in str(wrong.value)


def test_every_kind_is_tried_here() -> None:
    """The tables above have each kind of assertion."""
    source = Path(__file__).read_text(encoding="utf-8")

    assert all(f", {kind}: " in source for kind in OF_ONE)
    assert all(f"{{{kind}: " in source for kind in OF_SEVERAL)
