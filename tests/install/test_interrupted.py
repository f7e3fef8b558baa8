"""An installation that fails or is killed at any of its changes leaves the node as it was."""

from collections.abc import Iterator

import pytest

from tests.install.attempts import Attempt, Attempts
from tests.install.conftest import MakeNode
from tests.install.nodes import MadeUpNode

KILLED = -9
CHANGES_MAX = 400
KINDS = ("kubeadm", "k3s", "rke2", "plain")
NODES = [
    pytest.param("kubeadm", True, 2, id="kubeadm-package"),
    pytest.param("k3s", False, 2, id="k3s-container"),
    pytest.param("rke2", True, 3, id="rke2-package"),
    pytest.param("plain", False, 3, id="plain-container"),
    *(
        pytest.param(kind, has_package, 1, id=f"{kind}-{has_package}-all", marks=pytest.mark.thorough)
        for kind in KINDS
        for has_package in (True, False)
    ),
]
"""With a package, only configuration changes; from a container, the program and the units come to the node as well."""


def faults(attempts: Attempts, node: MadeUpNode, fault: str, stride: int) -> Iterator[tuple[int, str]]:
    """Install with a fault at every *stride*-th change, until the installation has fewer changes; yield what was told.

    The last one is complete, and is not yielded.
    """
    for number in range(1, CHANGES_MAX, stride):
        attempt = Attempt(folder=str(node.folder), kind=node.kind, fault=fault, at=number)
        status, told = attempts.run(attempt)
        if status == 0:
            assert number > 20 // stride
            return
        assert status == (KILLED if fault == "kill" else 1), told
        yield number, told
    raise AssertionError("no end")


@pytest.mark.parametrize(("kind", "has_package", "stride"), NODES)
def test_an_error_at_any_change(
    attempts: Attempts, make_node: MakeNode, kind: str, has_package: bool, stride: int
) -> None:
    """A full disk or a program that cannot run, at any change: all is taken back, and no journal stays."""
    node = make_node(kind, has_package=has_package)
    before = node.snapshot()

    for number, told in faults(attempts, node, "error", stride):
        assert node.snapshot() == before, (number, told)
        assert "No space left" in told


@pytest.mark.parametrize(("kind", "has_package", "stride"), NODES)
def test_a_kill_at_any_change(
    attempts: Attempts, make_node: MakeNode, kind: str, has_package: bool, stride: int
) -> None:
    """A killed installation is taken back by `uninstall`, which says so."""
    node = make_node(kind, has_package=has_package)
    before = node.snapshot()

    for number, told in faults(attempts, node, "kill", stride):
        status, after = attempts.run(Attempt(folder=str(node.folder), kind=kind, action="uninstall"))
        assert status == 0, (number, told, after)
        assert node.snapshot() == before, (number, told, after)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_installation_after_a_kill(attempts: Attempts, make_node: MakeNode, kind: str) -> None:
    """It takes back what was begun, and installs: the node is as after an installation without a kill."""
    node = make_node(kind)
    attempts.run(Attempt(folder=str(node.folder), kind=kind))
    whole = comparable(node)
    attempts.run(Attempt(folder=str(node.folder), kind=kind, action="uninstall"))

    for number in range(3, 60, 19):
        status, told = attempts.run(Attempt(folder=str(node.folder), kind=kind, fault="kill", at=number))
        assert status == KILLED, told
        status, told = attempts.run(Attempt(folder=str(node.folder), kind=kind))
        assert status == 0, told
        assert comparable(node) == whole, number
        attempts.run(Attempt(folder=str(node.folder), kind=kind, action="uninstall"))


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_uninstallation_that_is_killed(attempts: Attempts, make_node: MakeNode, kind: str, stride: int) -> None:
    """The next one does the rest, wherever the first one was killed."""
    node = make_node(kind)
    before = node.snapshot()

    for number in range(1, CHANGES_MAX, stride):
        attempts.run(Attempt(folder=str(node.folder), kind=kind))
        attempt = Attempt(folder=str(node.folder), kind=kind, action="uninstall", fault="kill", at=number)
        status, told = attempts.run(attempt)
        again, told_again = attempts.run(Attempt(folder=str(node.folder), kind=kind, action="uninstall"))
        assert again == 0, (told, told_again)
        assert node.snapshot() == before, (number, told, told_again)
        if status == 0:
            return
    raise AssertionError("no end")


def comparable(node: MadeUpNode) -> dict[str, object]:
    """Return a snapshot without the journal, which has the times of files."""
    return {name: value for name, value in node.snapshot().items() if "criproxy-install.json" not in name}


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_that_fails(attempts: Attempts, make_node: MakeNode, kind: str) -> None:
    """Each command that an installation runs fails once: all is taken back, and the message names the command."""
    node = make_node(kind)
    before = node.snapshot()
    for words in ("daemon-reload", "enable --now", f"restart {'kubelet' if kind in ('kubeadm', 'plain') else kind}"):
        node.fail_on(words)
        status, told = attempts.run(Attempt(folder=str(node.folder), kind=kind, timeout_s=1))
        assert (status, words in told) == (1, True), told
        node.fail_on("")
        if node.snapshot() != before:  # what takes it back fails as well, and the message says how to go on
            assert "the node is not as it was" in told
            status, told = attempts.run(Attempt(folder=str(node.folder), kind=kind, action="uninstall"))
            assert status == 0, told
        assert node.snapshot() == before, told
