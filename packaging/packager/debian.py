"""Debian's packages of which the image is made: fetched once by apt, kept in build/, and unpacked by dpkg-deb."""

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from packager import wheels
from packager.source import DEBS, BuildError, run

_ROOTS = ("python{minor}-minimal", "libpython{minor}-stdlib", "libstdc++6", "busybox-static", "base-files")
TOOLS = ("patchelf",)
"""Packages that the build uses, and that are not in the image."""
_LEFT_OUT = re.compile(
    r"perl.*|dpkg|tar|awk|mawk|debconf.*|media-types|mailcap|mime-support|libdb\d.*|libgdbm.*|libtirpc.*|libnsl2|"
    r"libreadline.*|readline-common|libncurses.*|libtinfo.*|ncurses.*|install-info|tzdata|netbase|base-passwd"
)
"""What Debian's packages need when they are installed, and for modules of Python that a daemon does not use."""
_STAMP = ".stamp"
_DEPENDENCY = re.compile(r"^ +\|?(?:Pre)?Depends: ([^<\s]+)$", re.MULTILINE)


def fetch() -> None:
    """Fetch the packages, unless there are some for this Python: newer ones come after `rm -r build/debs`.

    Raises:
        BuildError: they cannot be had.
    """
    stamp = DEBS / _STAMP
    if stamp.exists() and stamp.read_text() == wheels.minor():
        return
    DEBS.mkdir(parents=True, exist_ok=True)
    for old in DEBS.iterdir():
        old.unlink()
    apt = ("apt-get", "-qq", "-o", "APT::Sandbox::User=root")  # its own user may not write to our folder
    if not _knows("busybox-static"):
        run(*apt, "update")
    run("env", f"--chdir={DEBS}", *apt, "download", *sorted(_wanted()), *TOOLS)
    stamp.write_text(wheels.minor())


def unpack(target: Path, *names: str) -> None:
    """Unpack packages, all of the image or those with these *names*, into the folder *target*."""
    fetch()
    for name, deb in sorted(_files().items()):
        if name in names if names else name not in TOOLS:
            run("dpkg-deb", "--extract", deb, target)


def packages() -> dict[str, Path]:
    """The name of each package of the image → its file."""
    fetch()
    return {name: deb for name, deb in sorted(_files().items()) if name not in TOOLS}


def described() -> dict[str, str]:
    """The name of each package of the image → its control file."""
    return {name: _printed("dpkg-deb", "--field", deb) for name, deb in packages().items()}


def release() -> dict[str, str]:
    """What os-release says of the distribution that has the packages, such as ID and VERSION_ID."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(Path(scratch), "base-files")
        text = (Path(scratch) / "usr/lib/os-release").read_text()
    return dict(re.findall(r"(?m)^(\w+)=\"?(.*?)\"?$", text))


def architecture() -> str:
    """The architecture of this machine and of what is built on it: OCI has the same names for amd64 and arm64."""
    return _printed("dpkg", "--print-architecture").strip()


def _files() -> dict[str, Path]:
    return {deb.name.partition("_")[0]: deb for deb in DEBS.glob("*.deb")}


def _wanted() -> set[str]:
    """The packages of the image, with those on which they depend."""
    found: set[str] = set()
    named = {name.format(minor=wheels.minor()) for name in _ROOTS}
    while new := {name for name in named - found if not _LEFT_OUT.fullmatch(name)}:
        found |= new
        named = _dependencies(new)
    return found


def _dependencies(names: set[str]) -> set[str]:
    """The real packages of which one of *names* needs one or all; asked at once, because apt-cache begins slowly."""
    return set(_DEPENDENCY.findall(_printed("apt-cache", "depends", *sorted(names))))


def _knows(name: str) -> bool:
    return bool(_printed("apt-cache", "policy", name))


@cache
def _printed(*command: str | Path) -> str:
    """What a command prints.

    Raises:
        BuildError: there is no such command, or it fails.
    """
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is missing: the image is built on Debian or one of its relatives") from error
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{' '.join(map(str, command))}: {error.stderr}") from error
