"""What a build starts from: the files of the checkout, the version, and the time that all built files have."""

import os
import shutil
import subprocess
from pathlib import Path

from criproxy import __version__

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "packaging/requirements.lock"
WHEELS = ROOT / "build/wheels"
DEBS = ROOT / "build/debs"
DIST = ROOT / "dist"
DATE_VARIABLE = "SOURCE_DATE_EPOCH"
"""See https://reproducible-builds.org/specs/source-date-epoch/."""
_SOURCES = (
    "criproxy deploy packaging policies systemd CHANGELOG.md LICENSE MANIFEST.in README.md pyproject.toml".split()
)
_NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


class BuildError(Exception):
    """A package cannot be built; the text is for people."""


def version() -> str:
    """The version of all packages."""
    return __version__


def date_s() -> int:
    """The time of all built files: SOURCE_DATE_EPOCH, else that of the last commit.

    Raises:
        BuildError: there is neither.
    """
    if given := os.environ.get(DATE_VARIABLE):
        return int(given)
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(asked, capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise BuildError(f"outside a git checkout, {DATE_VARIABLE} must be set: {error}") from error


def copy_to(target: Path) -> None:
    """Copy the sources to *target*, where a build may write: setuptools leaves files that the next build would find."""
    target.mkdir(parents=True)
    for name in _SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=_NOT_SOURCES)
        else:
            shutil.copy(source, target)
    normalise(target)


def normalise(top: Path) -> None:
    """Give all files below *top* the same owner's rights and time, whatever the umask and the clock were."""
    when_s = date_s()
    for path in sorted(top.rglob("*"), reverse=True):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
        os.utime(path, (when_s, when_s), follow_symlinks=False)
    top.chmod(0o755)
    os.utime(top, (when_s, when_s))


def run(*command: str | Path, **env: str) -> None:
    """Run a program of the build with *env* in addition to the environment.

    Raises:
        BuildError: there is no such program, or it failed, with what it printed.
    """
    every = {**os.environ, **env}
    try:
        ended = subprocess.run(command, env=every, umask=0o022, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is missing: packages are built on Debian or one of its relatives") from error
    if ended.returncode:
        raise BuildError(f"{' '.join(map(str, command))}: exit status {ended.returncode}\n{ended.stdout}{ended.stderr}")
