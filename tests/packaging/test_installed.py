"""The Debian package on a node with systemd, containerd and pods: installed, upgraded, refused, removed, purged."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from criproxy import __version__
from criproxy.host.machine import discover
from criproxy.model.cpuset import format_cpuset
from tests.packaging.building import NEXT
from tests.packaging.inside import CONFIGURED
from tests.systemd import booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ALL = discover().cpus
OWNED = frozenset([min(ALL - {min(ALL)})])
KUBELET_PATIENCE_S = 30.0
"""A runtime that does not answer for longer makes the node not ready."""


@pytest.fixture(scope="module")
def node(package: Path, next_package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the facts of one life of a node, from the installation to the purge."""
    if reason := booted.available():
        pytest.skip(reason)
    shared = tmp_path_factory.mktemp("node")
    shutil.copy(package, shared / "first.deb")
    shutil.copy(next_package, shared / "next.deb")
    return booted.facts(shared, "tests.packaging.inside", booted.HOME_BESIDE_PACKAGE)


def places(node: dict[str, Any], *more: str) -> dict[str, str]:
    """Where pods are while criproxy places them: all but one share."""
    return {pod: format_cpuset(ALL - OWNED) for pod in ("web", *more)} | {"trader": format_cpuset(OWNED)}


def test_an_installation_starts_nothing(node: dict[str, Any]) -> None:
    """The units are there for the engineer to enable."""
    assert node["before"] == []
    assert node["install"]["status"] == 0, node["install"]["said"]
    assert set(map(tuple, node["units of an installed package"].values())) == {("inactive", "disabled")}


def test_the_installed_program_runs(node: dict[str, Any]) -> None:
    """It has all its libraries, and finds nothing wrong with the policy file of the package."""
    assert node["version"] == {"status": 0, "said": f"criproxy, version {__version__}\n"}
    assert node["check"]["status"] == 0, node["check"]["said"]
    assert (node["libraries"], node["verify"]) == ({"status": 0, "said": ""}, {"status": 0, "said": ""})


def test_containers_are_placed(node: dict[str, Any]) -> None:
    """With the units of the package, and the policy of the engineer."""
    assert node["placed"] == places(node)
    assert node["nice"] == {"web": 5, "trader": 5}, "their class, which the service has set"


CHANGES = {
    "upgrade": ("upgrade", NEXT, ("upgrade", "after-upgrade")),
    "downgrade": ("downgrade", __version__, ("upgrade", "after-upgrade", "downgrade", "after-downgrade")),
}


@pytest.mark.parametrize(("change", "version", "pods"), CHANGES.values(), ids=CHANGES)
def test_another_version_takes_over_under_load(
    node: dict[str, Any], change: str, version: str, pods: tuple[str, ...]
) -> None:
    """The running service is restarted, no call fails, pods can be created meanwhile, and nobody moves."""
    found = node[change]
    assert found["status"] == 0, found["said"]
    assert found["version"] == f"criproxy, version {version}\n"
    assert found["restarted"]
    assert found["failures"] == []
    assert found["longest call"] < KUBELET_PATIENCE_S
    assert found["cpus"] == places(node, *pods)
    assert found["policy"] == "policy: static", "the engineer's file was replaced"


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("while connected", "the kubelet is connected to criproxy's socket"),
        ("while connected", "CRIPROXY_FORCE_REMOVE=1 removes it nevertheless"),
        ("of an installation", "run 'criproxy uninstall'"),
        ("without a runtime", "criproxy: some containers may still be pinned\n"),
    ],
)
def test_it_is_not_removed(node: dict[str, Any], when: str, said: str) -> None:
    """A kubelet could not reach the runtime, or has files that only the command knows, or nobody would unpin later."""
    refusal = node[f"removal {when}"]
    assert (refusal["status"], said in refusal["said"]) == (1, True), refusal["said"]


@pytest.mark.parametrize("file", CONFIGURED)
def test_it_is_not_removed_under_a_kubelet_that_shall_use_it(node: dict[str, Any], file: str) -> None:
    """The kubelet may be down, and would not find the runtime at its next start. A comment in the file is no reason."""
    refusal = node["removal while configured"][file]
    assert refusal["status"] == 1, refusal["said"]
    assert f"the kubelet is configured to use criproxy's socket in {file}\n" in refusal["said"]


def test_a_refused_removal_changes_nothing(node: dict[str, Any]) -> None:
    """The service runs, and containers are where they were."""
    after = node["after refusals"]
    assert after["units"]["criproxy.service"] == ["active", "enabled"]
    assert after["cpus"]["trader"] == format_cpuset(OWNED)


def test_a_removal_unpins_all_containers_and_leaves_configuration_and_state(node: dict[str, Any]) -> None:
    """All pods run on, on all CPUs; nothing of criproxy runs."""
    removal = node["removal"]
    assert removal["status"] == 0, removal["said"]
    assert set(removal["cpus"].values()) == {format_cpuset(ALL)}
    assert {state for state, _ in removal["units"].values()} == {"inactive"}
    assert set(removal["nice"].values()) == {0}, "what the class has set is put back"
    assert "/var/lib/criproxy-controls/lock" in removal["left"]
    kept = ("/etc/criproxy", "/etc/default/criproxy", "/var/lib/criproxy")
    assert [path for path in removal["left"] if not path.startswith(kept)] == []
    assert "/etc/criproxy/policy.yaml" in removal["left"]


def test_a_purge_leaves_nothing(node: dict[str, Any]) -> None:
    """Neither files nor links of units."""
    assert node["purge"]["status"] == 0, node["purge"]["said"]
    assert node["purge"]["left"] == []


def test_a_forced_removal_unpins_all_containers_too(node: dict[str, Any]) -> None:
    """The engineer has said that the kubelet is taken care of."""
    assert node["forced"]["status"] == 0, node["forced"]["said"]
    assert "the kubelet is connected to criproxy's socket" in node["forced"]["said"]
    assert (set(node["forced"]["cpus"].values()), node["forced"]["left"]) == ({format_cpuset(ALL)}, [])


def test_the_kubelet_is_never_touched(node: dict[str, Any]) -> None:
    """It is the same process at the end."""
    assert node["same kubelet"]
