"""`criproxy install` and `uninstall` with a real systemd, and a kubelet that calls its runtime.

On a node with the Debian package, and from the image, as the chart does it.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from criproxy import __version__
from tests.systemd import booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROXY = "--container-runtime-endpoint=unix:///run/criproxy/criproxy.sock"


@pytest.fixture(scope="module")
def node(
    packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Any]:
    """Return the facts of one life of a node, with one way to install after the other."""
    has_image = request.config.getoption("--thorough")
    reason = booted.available() or ("not installed: umoci" if has_image and not shutil.which("umoci") else "")
    if reason:
        pytest.skip(reason)
    shared = tmp_path_factory.mktemp("node")
    shutil.copy(packages["deb"], shared / "first.deb")
    if has_image:
        layout = tmp_path_factory.mktemp("layout")
        subprocess.run(("tar", "--extract", "--directory", layout, "--file", packages["image"]), check=True)
        unpack = ("umoci", "unpack", "--image", f"{layout}:{__version__}", shared / "bundle")
        subprocess.run(unpack, check=True, capture_output=True)
    return booted.facts(shared, "tests.packaging.inside_command", booted.HOME_BESIDE_PACKAGE)


@pytest.fixture(params=["package", pytest.param("image", marks=pytest.mark.thorough)])
def way(node: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the facts of one way to install."""
    found: dict[str, Any] = node[request.param]
    return found


def test_the_quick_start_of_readme_works_on_kubeadm(node: dict[str, Any]) -> None:
    """Typed as it stands there: the flag of kubeadm is overridden, and the kubelet starts after criproxy.

    The kubelet reserves none of the CPUs of the policy, which is said.
    """
    found = node["quick start"]
    said = found["typed"]["said"]
    assert found["typed"]["status"] == 0, said
    assert ". start criproxy: systemctl enable --now criproxy.socket criproxy.service" in said
    assert "note: the kubelet reserves no CPU (reservedSystemCPUs is not set), but this policy reserves CPU 0" in said
    assert "\ncriproxy is installed, and the kubelet calls it.\n" in said
    assert found["kubelet"]["endpoint"] == PROXY
    assert {"criproxy.socket", "criproxy.service"} <= set(found["drop-in"].split())
    assert found["check"]["status"] == 0, found["check"]["said"]
    assert found["uninstall"]["status"] == 0, found["uninstall"]["said"]
    assert differing(found, "after") == {}


def test_a_dry_run_only_tells(way: dict[str, Any]) -> None:
    """It finds the kubelet of kubeadm and the runtime, and leaves all files alone."""
    said = way["dry run"]["said"]
    assert way["dry run"]["status"] == 0, said
    assert "node: kubeadm, the kubelet runs in kubelet.service" in said
    assert "write /etc/default/kubelet: the kubelet calls criproxy" in said
    assert differing(way, "after the dry run") == {}


def test_an_installation_that_fails_goes_back(way: dict[str, Any]) -> None:
    """A kubelet that does not start with criproxy's socket is pointed at the runtime again."""
    assert way["failed"]["status"] == 1, way["failed"]["said"]
    assert "going back" in way["failed"]["said"]
    assert differing(way, "after a failure") == {}


def test_the_kubelet_calls_criproxy(way: dict[str, Any]) -> None:
    """Both units run and are enabled, the kubelet has the new endpoint, and nothing is wrong."""
    assert way["install"]["status"] == 0, way["install"]["said"]
    found = way["installed"]
    assert found["kubelet"]["endpoint"] == PROXY
    assert set(map(tuple, found["units"].values())) == {("active", "enabled")}
    assert found["check"]["status"] == 0, found["check"]["said"]
    assert "Nothing to do" in way["again"]["said"]


def test_metrics_and_the_page_are_where_they_were_wanted(way: dict[str, Any]) -> None:
    """The page needs the token; metrics do not."""
    found = way["installed"]
    assert (found["metrics"], found["page"], found["page with its token"]) == ("200", "403", "200")


def test_the_package_stays_until_the_uninstallation(node: dict[str, Any]) -> None:
    """Then it can be purged."""
    removal = node["package"]["removal of the package"]
    assert removal["status"] == 1, removal["said"]
    assert node["purge"]["status"] == 0, node["purge"]["said"]


def test_the_node_is_as_before(way: dict[str, Any]) -> None:
    """Files have their content, owner, mode and time; the kubelet calls the runtime."""
    assert way["uninstall"]["status"] == 0, way["uninstall"]["said"]
    assert differing(way, "after") == {}
    assert "criproxy.sock" not in way["kubelet"]["endpoint"]


def differing(way: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what differs from the files before, by path: before, and then."""
    before, then = way["files before"], way[f"files {name}"]
    return {path: (before.get(path), then.get(path)) for path in {*before, *then} if before.get(path) != then.get(path)}
