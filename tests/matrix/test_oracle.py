"""The oracle: what must be told of who runs where, and where --check differs from it."""

import ast
from pathlib import Path

import pytest

from lab.chaos.checker.cpus import parse
from tests.conftest import ROOT
from tests.matrix import oracle
from tests.matrix.oracle import STRANGER, Asked, Ledger, Wrong, disagreements, wrongs

OWNER = Asked("default/own/main", 2000, guaranteed=True, placed_by="static")
SHARER = Asked("default/share/main", 100, placed_by="static")
RESERVED = frozenset({0})


def test_it_imports_nothing_that_it_judges() -> None:
    """Neither the oracle nor what looks at cgroups knows criproxy; the checker has CRI's generated messages from it."""
    checker = (ROOT / "lab/chaos/checker").glob("*.py")
    for file, allowed in ((Path(oracle.__file__), ()), *((file, ("criproxy.cri.api_pb2",)) for file in checker)):
        names = set[str]()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom | ast.Import):
                module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                names |= {module + alias.name for alias in node.names}
        assert not {name for name in names if name.startswith("criproxy") and not name.startswith(allowed)}


@pytest.mark.parametrize(
    ("asked", "owns"),
    [
        pytest.param(OWNER, 2, id="static"),
        pytest.param(Asked("a/b/c", 1500, guaranteed=True, placed_by="static"), 0, id="no-whole-number"),
        pytest.param(Asked("a/b/c", 2000, placed_by="static"), 0, id="burstable"),
        pytest.param(Asked("a/b/c", 2000, guaranteed=True, placed_by="none"), 0, id="none"),
        pytest.param(Asked("a/b/c", 2000, guaranteed=True, placed_by="topology-aware"), 2, id="topology-aware"),
        pytest.param(Asked("kube-system/b/c", 2000, guaranteed=True, placed_by="topology-aware"), 0, id="reserved"),
        pytest.param(
            Asked("a/b/c", 2000, guaranteed=True, wishes={"cpu.preserve": "true"}, placed_by="topology-aware"),
            0,
            id="preserve",
        ),
        pytest.param(Asked("a/b/c", 2000, guaranteed=True, placed_by="balloons"), 0, id="balloons"),
        pytest.param(Asked("a/b/c", 100, wishes={"pool.podpools": "alone"}, placed_by="pools"), 2, id="pool"),
        pytest.param(Asked("a/b/c", 2000, guaranteed=True, placed_by=STRANGER), 0, id="stranger"),
    ],
)
def test_who_shall_own_cpus(asked: Asked, owns: int) -> None:
    """It follows from the policy, the request and the annotations."""
    assert asked.owns == owns


@pytest.mark.parametrize(
    ("own", "share", "found"),
    [
        pytest.param("1-2", "0,3", [], id="well"),
        pytest.param("0-3", "0-3", ["default/own/main shall own 2 CPUs and is on 0,1,2,3"], id="shares"),
        pytest.param(
            "1-2", "0-3", ["default/own/main shall own 1,2, and there are default/share/main on 0,1,2,3"], id="overlap"
        ),
        pytest.param("0-1", "2-3", ["default/own/main has exclusive use of reserved CPUs 0"], id="reserved"),
    ],
)
def test_what_must_be_told(own: str, share: str, found: list[str]) -> None:
    """An owner that shares, that is not alone, or that has reserved CPUs."""
    running = {"o": parse(own), "s": parse(share)}
    assert [wrong.text for wrong in wrongs({"o": OWNER, "s": SHARER}, running, RESERVED)] == found


def test_pools_are_apart() -> None:
    """Containers of two pools on one CPU must be told, unless one came while criproxy could not place."""
    pair = Asked("default/a/main", wishes={"pool.podpools": "pair"}, placed_by="pools")
    other = Asked("default/b/main", placed_by="pools")
    running = {"a": parse("1-2"), "b": parse("2-3")}
    (wrong,) = wrongs({"a": pair, "b": other}, running, RESERVED)
    assert wrong.text == "default/a/main (pair) and default/b/main (default) are both on 2"
    ledger = Ledger("pools")
    ledger.failing = 1
    ledger.creates("b", other)
    assert not list(wrongs({"a": pair, **ledger.asked}, running, RESERVED))


WRONG = Wrong(frozenset({"default/own/main"}), "it shares")


@pytest.mark.parametrize(
    ("expected", "problems", "excused", "found"),
    [
        pytest.param([], [], [], [], id="all-well"),
        pytest.param([WRONG], ["default/own/main should have 2 exclusive CPUs"], [], [], id="told"),
        pytest.param([WRONG], [], [], ["--check is silent: it shares"], id="silent"),
        pytest.param([WRONG], ["CPU 1 …"], [], ["--check is silent: it shares", "CPU 1 …"], id="another"),
        pytest.param([], ["CPU 1 …"], [], ["CPU 1 …"], id="false-alarm"),
        pytest.param([], ["default/x/main shares"], ["default/x/main"], [], id="excused"),
        pytest.param([Wrong(frozenset(), "bypass")], ["bypass is on"], [], [], id="any-sentence"),
        pytest.param([Wrong(frozenset(), "bypass")], [], [], ["--check is silent: bypass"], id="no-sentence"),
    ],
)
def test_where_they_differ(expected: list[Wrong], problems: list[str], excused: list[str], found: list[str]) -> None:
    """What is wrong must be named, and what is right must not."""
    answer = {"problems": problems, "under_way": [], "notices": []}
    told = disagreements(expected, answer, excused)
    assert [text.removeprefix("--check complains, and nothing is wrong: ") for text in told] == found


def test_what_is_done_to_a_node_changes_who_owns() -> None:
    """A release lets go, its end places; apply: new leaves alone who shares; what came unseen is a stranger's."""
    ledger = Ledger("static")
    ledger.creates("o", OWNER)
    ledger.releases()
    owns = [ledger.asked["o"].owns]
    ledger.undoes()
    owns += [ledger.asked["o"].owns]
    assert owns == [0, 2]
    ledger.away = True
    ledger.creates("x", OWNER)
    ledger.reloads("topology-aware", everybody=True)
    ledger.looks()
    assert (ledger.asked["o"].placed_by, ledger.asked["x"].placed_by) == ("topology-aware", STRANGER)
    ledger.creates("s", SHARER)
    ledger.reloads("pools", everybody=False)
    assert (ledger.asked["o"].owns, ledger.asked["s"].realm) == (2, "")


def test_a_size_that_nobody_saw_is_placed_by_the_policy_in_force() -> None:
    """Who was resized during a bypass belongs to the policy that sees the new size first."""
    ledger = Ledger("static")
    ledger.creates("own", OWNER)
    ledger.away = True
    ledger.resizes("own", 3000)
    ledger.reloads("balloons", everybody=False)
    assert ledger.asked["own"].placed_by == "static"

    ledger.looks()

    assert (ledger.asked["own"].placed_by, ledger.asked["own"].owns) == ("balloons", 0)
