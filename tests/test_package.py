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

    assert "criproxy = criproxy.__main__:run" in wheel.read(entry_points).decode()


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


def headings(changelog: str) -> list[str]:
    """The sections of the changelog, the newest first."""
    return [line for line in changelog.splitlines() if line.startswith("## ")]


def problems(version: str, changelog: str, tagged: list[str]) -> list[str]:
    """What does not match in a release."""
    first, *rest = headings(changelog)
    found = [] if first == "## [Unreleased]" else [f"the changelog begins with {first}"]
    releases = [DATED.fullmatch(line) for line in rest]
    found += [f"{line} is no release with a date" for line, match in zip(rest, releases, strict=True) if not match]
    versions = [tuple(map(int, match[1].split("."))) for match in releases if match]
    if versions != sorted(set(versions), reverse=True):
        found.append("the releases of the changelog are not in order")
    newest = next((match for match in releases if match), None)
    if newest is None or newest[1] != version:
        found.append(f"the newest release of the changelog is not {version}")
    if newest:
        date.fromisoformat(newest[2])
    if tagged and tagged != [f"v{version}"]:
        found.append(f"the commit of version {version} has the tags {tagged}")
    if tagged and rest and changelog.partition(first)[2].partition(rest[0])[0].strip():
        found.append("a release has changes that are not in its section")
    return found


def test_version_changelog_and_tag_match() -> None:
    """The newest dated section is the version of the package, and so is a tag of this commit."""
    assert problems(__version__, (ROOT / "CHANGELOG.md").read_text(), tags()) == []


@pytest.mark.parametrize(
    ("version", "changelog", "tagged", "said"),
    [
        ("0.2.0", "## [Unreleased]\n## [0.1.0] - 2026-01-02\n", [], "the newest release of the changelog is not 0.2.0"),
        ("0.1.0", "## [0.1.0] - 2026-01-02\n", [], "the changelog begins with ## [0.1.0] - 2026-01-02"),
        (
            "0.1.0",
            "## [Unreleased]\n## [0.1.0] - 2026-01-02\n",
            ["v0.1.1"],
            "the commit of version 0.1.0 has the tags ['v0.1.1']",
        ),
        (
            "0.1.0",
            "## [Unreleased]\n- late\n## [0.1.0] - 2026-01-02\n",
            ["v0.1.0"],
            "a release has changes that are not in its section",
        ),
    ],
)
def test_what_does_not_match_is_found(version: str, changelog: str, tagged: list[str], said: str) -> None:
    """Each mistake by itself."""
    assert said in problems(version, changelog, tagged)


@pytest.mark.parametrize("page", ["docs/install.md", "docs/helm.md"])
def test_the_documentation_names_files_of_this_version(page: str) -> None:
    """What a reader types is there after `make package`."""
    assert set(NAMED.findall((ROOT / page).read_text())) == {__version__}
