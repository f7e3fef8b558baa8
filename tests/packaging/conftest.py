"""Packages are built once for all tests."""

import shutil
from pathlib import Path

import pytest

from tests.packaging.building import NEXT, built, renumbered


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the kind and the place of each package."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("not installed: dpkg-deb")
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def package(packages: dict[str, Path]) -> Path:
    """Return the Debian package."""
    return packages["deb"]


@pytest.fixture(scope="session")
def next_package(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Debian package of a newer version, which differs from *package* in its version alone."""
    return renumbered(package, tmp_path_factory.mktemp("next"), NEXT)
