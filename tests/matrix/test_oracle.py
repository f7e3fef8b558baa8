"""The oracle: what must be told of who runs where, and where --check differs from it."""

import ast
from pathlib import Path

import pytest

from lab.chaos.checker.cgroups import parse
from tests.conftest import ROOT
from tests.matrix import oracle
from tests.matrix.oracle import STRANGER, Asked, wrongs

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
