"""The wheels of the libraries that the program needs, as the lock file has them; fetched once, then kept in build/."""

import hashlib
import sys
from functools import cache
from pathlib import Path

from packager.source import LOCK, WHEELS, BuildError, run

_STAMP = ".stamp"
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")


@cache
def distribution_python() -> Path:
    """The distribution's Python with its minor version, such as /usr/bin/python3.11: the package depends on it.

    Raises:
        BuildError: there is none.
    """
    found = Path("/usr/bin/python3").resolve()
    if not found.name.startswith("python3."):
        raise BuildError("/usr/bin/python3 is missing or does not lead to a python3.N: is this Debian?")
    return found


def minor() -> str:
    """The version of that Python, such as 3.11."""
    return distribution_python().name.removeprefix("python")


def fetch() -> None:
    """Fetch the wheels, unless those of this lock file and this Python are there.

    Raises:
        BuildError: they cannot be had.
    """
    stamp, wanted = WHEELS / _STAMP, f"{minor()} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    WHEELS.mkdir(parents=True, exist_ok=True)
    for old in WHEELS.iterdir():
        old.unlink()
    run(*_PIP, "download", "--no-deps", *_options(), "--requirement", LOCK, "--dest", WHEELS)
    stamp.write_text(wanted)


def install(site: Path, own: Path) -> None:
    """Install the libraries, whose hashes are checked, and our wheel *own* into the folder *site*, without network."""
    fetch()
    offline = (*_PIP, "install", "--no-index", "--no-deps", "--no-compile", "--target", site)
    run(*offline, "--find-links", WHEELS, *_options(), "--requirement", LOCK)
    run(*offline, own)


def _options() -> tuple[str, ...]:
    return ("--require-hashes", "--only-binary=:all:", "--python-version", minor())


def files() -> tuple[Path, ...]:
    """The wheels that were fetched."""
    return tuple(sorted(WHEELS.glob("*.whl")))
