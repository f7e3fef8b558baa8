"""The newer runtimes that tests know, and where they are kept: a folder of programs for each, in the user's cache.

What is there is used without a look at the network. `make setup` fetches what `make test` needs, `make runtimes` the
rest.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.runtimes.debian import FetchError, Suite, run
from tests.runtimes.elf import fits_older_libc

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("containerd", "runc")
PROGRAMS = ("usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr", "usr/sbin/runc")
LOCK = ROOT / ".ci/runtimes.lock"
REFRESH = "make runtimes ARGS=--lock"


@dataclass(frozen=True, slots=True)
class Newer:
    """A runtime that this machine's own Debian does not have."""

    series: str
    """The beginning of containerd's version."""
    suite: str
    """Debian's suite."""
    locked: bool
    """Whether `LOCK` says which versions: the suite moves every few days, and one containerd does not test another."""


NEWER = (Newer("1.7", "trixie", locked=False), Newer("2", "sid", locked=True))


@dataclass(frozen=True, slots=True)
class Package:
    """A package as `LOCK` names it."""

    name: str
    version: str
    sha256: str


def by_series(series: str) -> Newer:
    """The runtime of that series; KeyError if tests know none."""
    return {each.series: each for each in NEWER}[series]


def cache_directory() -> Path:
    """Where they are kept: CRIPROXY_RUNTIMES_CACHE, else ``criproxy/runtimes`` in the user's cache directory."""
    if given := os.environ.get("CRIPROXY_RUNTIMES_CACHE"):
        return Path(given).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "criproxy/runtimes"


def locked() -> tuple[Package, ...]:
    """What `LOCK` names."""
    return tuple(Package(**each) for each in json.loads(LOCK.read_text()))


def find(cache: Path, newer: Newer) -> Path | None:
    """The folder of its programs; None if it was not fetched, or if that was another one than `LOCK` names."""
    folder = cache / f"containerd-{newer.series}"
    try:
        there = json.loads((folder / "packages.json").read_text())
    except FileNotFoundError:
        return None
    wanted = [asdict(package) for package in locked()] if newer.locked else there
    return folder / "bin" if there == wanted else None


def missing(newer: Newer) -> str:
    """The reason of a test that is skipped for lack of it."""
    how = "make runtimes" if newer.locked else "make setup, as root, on a Debian"
    return f"no containerd {newer.series} in {cache_directory()} ({how} fetches it)"


def described(newer: Newer) -> str:
    """The packages that were fetched, for people."""
    there = json.loads((cache_directory() / f"containerd-{newer.series}/packages.json").read_text())
    return ", ".join(f"{each['name']} {each['version']}" for each in there)


def fetch(cache: Path, newer: Newer) -> Path:
    """The folder of its programs, fetched if they are not there yet.

    Raises:
        FetchError: if Debian's packages cannot be had, or are not what they should be.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with _keeping_others_out(cache):
        if folder := find(cache, newer):
            return folder
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            _fetch(newer, cache / f"containerd-{newer.series}", Path(scratch))
    if folder := find(cache, newer):
        return folder
    raise FetchError(f"what was fetched as containerd {newer.series} is not what {LOCK.name} names")


def _fetch(newer: Newer, folder: Path, scratch: Path) -> None:
    if newer.locked and platform.machine() != "x86_64":
        raise FetchError(f"{LOCK.name} names packages for x86_64, this machine is {platform.machine()}")
    suite = Suite(newer.suite, scratch)
    suite.update()
    wanted = locked() if newer.locked else tuple(Package(name, suite.version(name), "") for name in PACKAGES)
    _check_series(newer, wanted)
    got = [_get(suite, package, scratch / "root") for package in wanted]
    _keep(scratch / "root", folder, got)


def _check_series(newer: Newer, packages: tuple[Package, ...]) -> None:
    version = next(package.version for package in packages if package.name == "containerd")
    if not version.startswith(f"{newer.series}."):
        raise FetchError(f"Debian's suite {newer.suite} has containerd {version}, not {newer.series}: change NEWER")


def _get(suite: Suite, package: Package, root: Path) -> Package:
    try:
        file = suite.download(package.name, package.version)
    except FetchError as error:
        now = suite.version(package.name)
        if now == package.version:
            raise
        raise FetchError(
            f"Debian's suite {suite.name} has {package.name} {now} now, not {package.version}, as {LOCK.name} says: "
            f"refresh that with {REFRESH}"
        ) from error
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if package.sha256 and digest != package.sha256:
        raise FetchError(f"{package.name} {package.version} is not what {LOCK.name} names: its SHA-256 is {digest}")
    run("dpkg-deb", "-x", str(file), str(root))
    return Package(package.name, package.version, digest)


def _keep(root: Path, folder: Path, packages: list[Package]) -> None:
    """Keep the programs; that the note of what they are is there says that all is."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    for name in PROGRAMS:
        (root / name).rename(folder / "bin" / Path(name).name)
    _make_run(folder / "bin/runc")
    write_json(folder / "packages.json", packages)


def _make_run(runc: Path) -> None:
    """See to it that *runc* runs with this machine's C library."""
    try:
        run(str(runc), "--version")
    except FetchError as error:
        try:
            fits_older_libc(runc)
        except ValueError as more:
            raise FetchError(f"{error}. No older library will do: {more}") from None
        run(str(runc), "--version")


def lock() -> tuple[Package, ...]:
    """Write what the suite that moves has now into `LOCK`; FetchError if it cannot be had."""
    (newer,) = (each for each in NEWER if each.locked)
    with tempfile.TemporaryDirectory() as scratch:
        suite = Suite(newer.suite, Path(scratch))
        suite.update()
        wanted = tuple(Package(name, suite.version(name), "") for name in PACKAGES)
        _check_series(newer, wanted)
        packages = tuple(_get(suite, package, Path(scratch) / "root") for package in wanted)
    write_json(LOCK, packages)
    return packages


def write_json(path: Path, packages: tuple[Package, ...] | list[Package]) -> None:
    """Write a list of packages, completely or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps([asdict(package) for package in packages], indent=2) + "\n")
    part.replace(path)


@contextmanager
def _keeping_others_out(cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
