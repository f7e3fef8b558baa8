"""The table in docs/support.md of what was tried names the runtimes, drivers and kubelet that the tests really use."""

import json
import re
import shutil
from pathlib import Path

import pytest

from lab.containerd.containerd_config import version_of
from lab.vm.plans import PLANS
from tests.conftest import ROOT
from tests.e2e.runtimes import IN_MAKE_RUNTIMES, IN_MAKE_TEST
from tests.runtimes import store

ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<versions>[^|]+) \| (?P<tried>[^|]+) \| `(?P<by>make \w+)` \|$", re.MULTILINE
)


def rows() -> dict[str, re.Match[str]]:
    """The table's rows, by what was tried."""
    return {row["what"]: row for row in ROW.finditer((ROOT / "docs/support.md").read_text())}


def upstream(version: str) -> str:
    """The version that the project gave, such as 2.1.9 of 2.1.9+ds1-5."""
    found = re.match(r"[\d.]+\d", version)
    assert found, version
    return found[0]


def test_every_runtime_is_in_the_table() -> None:
    """With the command that tries it, and no others."""
    told = {what: row["by"] for what, row in rows().items() if what.startswith("containerd ")}

    wanted = {f"containerd {runtime.name}": "make test" for runtime in IN_MAKE_TEST if not runtime.is_front}
    locked = {package.name: upstream(package.version) for package in store.locked()}
    wanted |= {f"containerd {locked['containerd'].rpartition('.')[0]}": "make runtimes"}
    assert (told, {runtime.series for runtime in IN_MAKE_RUNTIMES}) == (wanted, {"2"})


def test_the_locked_versions_are_told() -> None:
    """Of containerd 2 and its runc: a refreshed lock needs another row."""
    containerd, runc = (upstream(package.version) for package in store.locked())

    assert f"{containerd} with runc {runc} " in rows()[f"containerd {containerd.rpartition('.')[0]}"]["versions"]


def test_the_fetched_versions_are_told() -> None:
    """Of containerd 1.7: trixie's patch releases are as good, another minor version is not."""
    newer = store.by_series("1.7")
    if not store.find(store.cache_directory(), newer):
        pytest.skip(store.missing(newer))
    packages = json.loads((store.cache_directory() / "containerd-1.7/packages.json").read_text())
    told = re.findall(r"\d+\.\d+(?=\.)", rows()["containerd 1.7"]["versions"])

    assert told == [upstream(package["version"]).rpartition(".")[0] for package in packages]


def test_the_machines_own_version_is_told() -> None:
    """That of Debian 12, which CI has."""
    program = shutil.which("containerd")
    if not program or "bookworm" not in Path("/etc/os-release").read_text():
        pytest.skip("this machine has not the containerd of Debian 12")
    assert "containerd {}.{}".format(*version_of(program)) in rows()


def test_the_drivers_are_told() -> None:
    """On cgroup v2, which the guests have."""
    drivers = sorted({plan.cgroup_driver for plan in PLANS.values()})

    assert rows()["cgroup v2"]["versions"] == f"drivers {', '.join(drivers)}"


def test_the_kubelet_is_that_of_the_recorded_calls(shared_dir: Path) -> None:
    """By its version."""
    traces = [folder.name.removeprefix("kubelet-") for folder in (shared_dir / "traces").glob("kubelet-*")]

    assert [f"{version} (recorded calls)" for version in sorted(traces)] == [rows()["kubelet"]["versions"]]
