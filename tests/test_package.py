"""What an installation from this checkout gets, and which version it is."""

import re
import shutil
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path

import pytest

from criproxy import __version__

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the package as `pip install .` does, from a copy, with the build tools that are here."""
    directory = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    shutil.copytree(ROOT / "criproxy", directory / "criproxy", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "out", "."]
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = (directory / "out").glob("criproxy-*.whl")
    return zipfile.ZipFile(path)


def test_every_file_of_the_package_is_in_it(wheel: zipfile.ZipFile) -> None:
    """No module, type stub or data file is left out; pages for readers of the source are none of these."""
    files = [path for path in (ROOT / "criproxy").rglob("*") if path.is_file() and path.suffix not in (".md", ".pyc")]

    assert {str(path.relative_to(ROOT)) for path in files} - set(wheel.namelist()) == set()


def test_it_brings_the_command(wheel: zipfile.ZipFile) -> None:
    """`criproxy` is what the units and the documentation call."""
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))

    scripts = wheel.read(entry_points).decode()
    assert "\ncriproxy = criproxy.__main__:run\n" in scripts
    assert "\nkubectl-criproxy = criproxy.cli.kubectl.plugin:run\n" in scripts


DATED = re.compile(r"## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)")
"""The heading of a release in the changelog."""
NAMED = re.compile(r"criproxy[-_:](\d+\.\d+\.\d+)")
"""A file of a release, or its image, as the documentation names it."""


def tags() -> list[str]:
    """The tags of releases at the commit that is checked out; none without a repository."""
    if not (ROOT / ".git").exists():
        return []
    command = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", "tag", "--points-at", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [tag for tag in found if re.match(r"v\d", tag)]


def test_version_changelog_and_tag_match() -> None:
    """The newest dated section is the version of the package, and so is a tag of this commit."""
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *rest = [line for line in text.splitlines() if line.startswith("## ")]
    releases = [found for line in rest if (found := DATED.fullmatch(line))]
    versions = [tuple(map(int, found[1].split("."))) for found in releases]

    assert (first, len(releases), releases[0][1]) == ("## [Unreleased]", len(rest), __version__)
    assert versions == sorted(set(versions), reverse=True)
    assert all(date.fromisoformat(found[2]) < date.max for found in releases)
    if tagged := tags():
        assert tagged == [f"v{__version__}"]
        assert not text.partition(first)[2].partition(rest[0])[0].strip(), "all changes are in the section of a release"


@pytest.mark.parametrize("page", ["docs/install.md", "docs/helm.md"])
def test_the_documentation_names_files_of_this_version(page: str) -> None:
    """What a reader types is there after `make package`."""
    assert set(NAMED.findall((ROOT / page).read_text())) == {__version__}
