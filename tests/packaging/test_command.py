"""`criproxy install` and `uninstall` with a real systemd, the Debian package, and a kubelet that calls its runtime."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.systemd import booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROXY = "--container-runtime-endpoint=unix:///run/criproxy/criproxy.sock"


@pytest.fixture(scope="module")
def node(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the facts of one life of a node, from the installation of the package to its purge."""
    if reason := booted.available():
        pytest.skip(reason)
    shared = tmp_path_factory.mktemp("node")
    shutil.copy(package, shared / "first.deb")
    return booted.facts(shared, "tests.packaging.inside_command", booted.HOME_BESIDE_PACKAGE)


def test_a_dry_run_only_tells(node: dict[str, Any]) -> None:
    """It finds the kubelet of kubeadm and the runtime, and leaves all files alone."""
    said = node["dry run"]["said"]
    assert node["dry run"]["status"] == 0, said
    assert "node: kubeadm, the kubelet runs in kubelet.service" in said
    assert "write /etc/default/kubelet: the kubelet calls criproxy" in said
    assert differing(node, "after the dry run") == {}


def test_an_installation_that_fails_goes_back(node: dict[str, Any]) -> None:
    """A kubelet that does not start with criproxy's socket is pointed at the runtime again."""
    assert node["failed"]["status"] == 1, node["failed"]["said"]
    assert "going back" in node["failed"]["said"]
    assert differing(node, "after a failure") == {}


def test_the_kubelet_calls_criproxy(node: dict[str, Any]) -> None:
    """Both units run and are enabled, the kubelet has the new endpoint, and nothing is wrong."""
    assert node["install"]["status"] == 0, node["install"]["said"]
    found = node["installed"]
    assert found["kubelet"]["endpoint"] == PROXY
    assert set(map(tuple, found["units"].values())) == {("active", "enabled")}
    assert found["check"]["status"] == 0, found["check"]["said"]
    assert "Nothing to do" in node["again"]["said"]


def test_metrics_and_the_page_are_where_they_were_wanted(node: dict[str, Any]) -> None:
    """The page needs the token; metrics do not."""
    found = node["installed"]
    assert (found["metrics"], found["page"], found["page with its token"]) == ("200", "403", "200")


def test_the_package_stays_until_the_uninstallation(node: dict[str, Any]) -> None:
    """Then it can be purged."""
    assert node["removal of the package"]["status"] == 1, node["removal of the package"]["said"]
    assert node["purge"]["status"] == 0, node["purge"]["said"]


def test_the_node_is_as_before(node: dict[str, Any]) -> None:
    """Files have their content, owner, mode and time; the kubelet calls the runtime."""
    assert node["uninstall"]["status"] == 0, node["uninstall"]["said"]
    assert differing(node, "after") == {}
    assert "criproxy.sock" not in node["kubelet"]["endpoint"]


def differing(node: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what differs from the files before, by path: before, and then."""
    before, then = node["files before"], node[f"files {name}"]
    return {path: (before.get(path), then.get(path)) for path in {*before, *then} if before.get(path) != then.get(path)}
