"""An installation that fails or is killed at any of its changes leaves the node as it was."""

from collections.abc import Iterator
from typing import Any

import pytest

from criproxy.install import paths
from tests.install.conftest import MakeNode
from tests.install.nodes import KINDS, KUBELET, MadeUpNode

KILLED = -9
STATUS = {"kill": KILLED, "error": 1, "interrupt": 3}
CHANGES_MAX = 400
NODES = [
    pytest.param("kubeadm", True, 2, id="kubeadm-package"),
    pytest.param("k3s", False, 2, id="k3s-container"),
    *(
        pytest.param(kind, has_package, 1, id=f"{kind}-{has_package}-all", marks=pytest.mark.thorough)
        for kind in KINDS
        for has_package in (True, False)
    ),
]
"""With a package, only configuration changes; from a container, the program and the units come to the node as well.

A step has at least two changes, since each is written to the journal, which is a new file that gets its name: with a
fault at every second one, each step has one."""


def faults(
    node: MadeUpNode, fault: str, stride: int, change: dict[str, Any] | None = None
) -> Iterator[tuple[int, str]]:
    """Install with a fault at every *stride*-th change, until the installation has fewer changes; yield what was told.

    The last one is complete, and is not yielded. Each step was the one with the fault before.
    """
    failed = set[str]()
    for number in range(1, CHANGES_MAX, stride):
        status, told = node.install(fault=fault, at=number, **(change or {}))
        steps = steps_in(told)
        if status == 0:
            assert set(steps) == failed
            assert len(failed) > 2
            return
        assert status == STATUS[fault], told
        failed |= {*steps[-1:]}
        yield number, told
    raise AssertionError("no end")


def steps_in(told: str) -> list[str]:
    """Return the steps that were begun and change something."""
    lines = told.splitlines()
    planned = {line.partition(". ")[2] for line in lines if line.lstrip()[:1].isdigit() and ". check that" not in line}
    return [line for line in lines if line in planned]


@pytest.mark.parametrize("fault", ["error", pytest.param("interrupt", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("kind", "has_package", "stride"), NODES)
def test_an_error_at_any_change(make_node: MakeNode, kind: str, has_package: bool, stride: int, fault: str) -> None:
    """A full disk, a program that cannot run, or Ctrl-C, at any change: all is taken back, and no journal stays."""
    node = make_node(kind, has_package=has_package)
    before = node.snapshot()

    for number, told in faults(node, fault, stride):
        assert node.snapshot() == before, (number, told)
        assert ("No space left" if fault == "error" else "KeyboardInterrupt") in told


@pytest.mark.parametrize(("kind", "has_package", "stride"), NODES)
def test_a_kill_at_any_change(make_node: MakeNode, kind: str, has_package: bool, stride: int) -> None:
    """A killed installation is taken back by `uninstall`, which says so."""
    node = make_node(kind, has_package=has_package)
    before = node.snapshot()

    for number, told in faults(node, "kill", stride):
        status, after = node.uninstall()
        assert status == 0, (number, told, after)
        assert node.snapshot() == before, (number, told, after)


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_uninstallation_that_is_killed(make_node: MakeNode, kind: str, stride: int) -> None:
    """The next one does the rest, wherever the first one was killed."""
    node = make_node(kind)
    before = node.snapshot()

    for number in range(1, CHANGES_MAX, stride):
        node.install()
        status, told = node.uninstall(fault="kill", at=number)
        again, told_again = node.uninstall()
        assert again == 0, (told, told_again)
        assert node.snapshot() == before, (number, told, told_again)
        if status == 0:
            return
    raise AssertionError("no end")


TOKEN = "a-secret-of-22-letters\n"  # noqa: S105 (of these tests)
CHANGE: dict[str, Any] = {"policy": "policy: balloons\n", "http": "0.0.0.0:9820", "page_token": TOKEN}


def aged(node: MadeUpNode) -> None:
    """Install an older version, with a page that needs a token."""
    node.install(http=":9", page_token=f"1{TOKEN}")
    (module,) = node.at(paths.HOME).glob("lib/*/site-packages/criproxy/__init__.py")
    module.write_text('__version__ = "0.0.1"\n')


@pytest.mark.parametrize("change", [CHANGE, {"http": ""}], ids=["other-page", "no-page"])
@pytest.mark.parametrize("stride", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_an_error_in_an_upgrade(make_node: MakeNode, stride: int, change: dict[str, Any]) -> None:
    """The former version runs with its former settings, and can be upgraded again."""
    node = make_node("k3s")
    aged(node)
    before = node.snapshot()

    for number, told in faults(node, "error", stride, change):
        assert node.snapshot() == before, (number, told)


@pytest.mark.parametrize("change", [CHANGE, {"http": ""}], ids=["other-page", "no-page"])
@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_kill_in_an_upgrade(make_node: MakeNode, stride: int, change: dict[str, Any]) -> None:
    """The next one does the rest, and an uninstallation leaves the node as it was before the first version."""
    node = make_node("plain")
    bare = node.snapshot()
    aged(node)
    node.install(**change)
    whole = comparable(node)

    for number in range(1, CHANGES_MAX, stride):
        node.uninstall()
        assert node.snapshot() == bare, number
        aged(node)
        if node.install(fault="kill", at=number, **change)[0] == 0:
            return
        if number % 2:
            told = node.installs(**change)
            assert comparable(node) == whole, (number, told)
    raise AssertionError("no end")


@pytest.mark.parametrize("fault", ["error", "kill"])
@pytest.mark.parametrize("nri", [True, False], ids=["to-nri", "to-the-proxy"])
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_fault_in_a_switch(make_node: MakeNode, stride: int, fault: str, *, nri: bool) -> None:
    """The kubelet calls whom it called before, and the runtime has its configuration; also by the next run."""
    node = make_node("plain")
    bare = node.snapshot()
    node.installs(nri=not nri)
    before = node.snapshot()

    for number in range(1, CHANGES_MAX, stride):
        status, told = node.install(fault=fault, at=number, nri=nri)
        if status == 0:
            node.uninstalls()
            assert node.snapshot() == bare
            return
        if fault == "kill":
            node.installs(nri=not nri)
        assert node.snapshot() == before, (number, told)
    raise AssertionError("no end")


def comparable(node: MadeUpNode) -> dict[str, object]:
    """Return a snapshot without the journal, which has the times of files."""
    return {name: value for name, value in node.snapshot().items() if "criproxy-install.json" not in name}


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_that_fails(make_node: MakeNode, kind: str) -> None:
    """Each command that an installation runs fails once: all is taken back, and the message names the command."""
    node = make_node(kind)
    before = node.snapshot()
    for words in ("daemon-reload", "enable --now", f"restart {KUBELET[kind]}"):
        node.fail_on(words)
        told = node.refuses()
        assert words in told
        node.fail_on("")
        if node.snapshot() != before:  # what takes it back fails as well, and the message says how to go on
            assert "the node is not as it was" in told
            told = node.uninstalls()
        assert node.snapshot() == before, told
