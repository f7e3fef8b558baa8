"""Newer runtimes: fetched once with an apt of our own, what they must be, and what is told where they cannot be had."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.runtimes import store
from tests.runtimes.debian import FetchError
from tests.runtimes.store import Newer, Package, fetch, find

LATER = Newer("1.7", "trixie", locked=False)
MOVING = Newer("2", "sid", locked=True)
APT_GET = """case " $* " in
*indextargets*) cat "$MIRROR/targets" 2>/dev/null; exit 0;;
*\\ update\\ *) [ -e "$MIRROR/targets" ] || cp "$MIRROR/fresh" "$MIRROR/targets"; exit 0;;
esac
for word; do last=$word; done
cp "$MIRROR/$(echo "$last" | tr = _).deb" . || { echo "E: Version for '$last' was not found" >&2; exit 100; }
"""
APT_CACHE = 'for word; do last=$word; done; echo "Version: $(cat "$MIRROR/$last.version")"\n'
TARGETS = """http://security.invalid/debian-security/ bookworm-security Debian-Security
http://mirror.invalid/debian/ bookworm-backports Debian
http://mirror.invalid/debian/ bookworm Debian
http://other.invalid/apt stable Other
"""


class Mirror:
    """A mirror of Debian with two packages, as an apt in PATH tells it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def publish(self, containerd: str, runc: str = "1.3.6") -> None:
        """Have these versions, and no others."""
        for old in self.folder.glob("*.deb"):
            old.unlink()
        self._build("containerd", containerd, ("usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"))
        self._build("runc", runc, ("usr/sbin/runc",))

    def _build(self, name: str, version: str, programs: tuple[str, ...]) -> None:
        tree = self.folder / f"{name}-{version}"
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: t\nDescription: t\n"
        (tree / "DEBIAN/control").write_text(control)
        for program in programs:
            (tree / program).parent.mkdir(parents=True, exist_ok=True)
            (tree / program).write_bytes(Path("/bin/true").read_bytes())
            (tree / program).chmod(0o755)
        package = self.folder / f"{name}_{version}.deb"
        subprocess.run(["dpkg-deb", "--build", tree, package], check=True, capture_output=True)
        (self.folder / f"{name}.version").write_text(version)

    def sha256(self, name: str) -> str:
        """Of the package that it has now."""
        return hashlib.sha256(next(self.folder.glob(f"{name}_*.deb")).read_bytes()).hexdigest()


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """A mirror in place of the machine's."""
    programs, folder = tmp_path / "bin", tmp_path / "mirror"
    programs.mkdir()
    folder.mkdir()
    for name, script in {"apt-get": APT_GET, "apt-cache": APT_CACHE}.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}")
        (programs / name).chmod(0o755)
    (folder / "fresh").write_text(TARGETS)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("MIRROR", str(folder))
    return Mirror(folder)


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock file of our own."""
    monkeypatch.setattr(store, "LOCK", tmp_path / "runtimes.lock")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return tmp_path / "runtimes.lock"


def test_it_is_fetched_once(tmp_path: Path, debian: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """All programs in one folder, executable; the second time without apt."""
    debian.publish("1.7.24~ds1-6", "1.1.15")

    folder = fetch(tmp_path / "cache", LATER)

    programs = sorted(path.name for path in folder.iterdir())
    assert programs == ["containerd", "containerd-shim-runc-v2", "ctr", "runc"]
    assert all(path.stat().st_mode & 0o111 for path in folder.iterdir())
    monkeypatch.setenv("PATH", "/nowhere")
    assert fetch(tmp_path / "cache", LATER) == folder == find(tmp_path / "cache", LATER)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["containerd-1.7", "lock"]


def test_another_package_of_that_version_is_refused(tmp_path: Path, debian: Mirror, lock: Path) -> None:
    """By its hash."""
    debian.publish("2.1.9")
    packages = [Package("containerd", "2.1.9", "0" * 64), Package("runc", "1.3.6", debian.sha256("runc"))]
    store.write_json(lock, packages)

    with pytest.raises(FetchError, match=r"containerd 2\.1\.9 is not what runtimes\.lock names: its SHA-256 is"):
        fetch(tmp_path / "cache", MOVING)
    assert find(tmp_path / "cache", MOVING) is None


def test_the_lock_names_what_is_needed() -> None:
    """Each package once, with a version and a SHA-256."""
    packages = store.locked()

    assert [package.name for package in packages] == list(store.PACKAGES)
    assert all(len(package.sha256) == 64 and package.version for package in packages)
