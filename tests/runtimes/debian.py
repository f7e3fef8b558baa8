"""Debian's packages of a newer suite than this machine's: fetched by an apt of our own and unpacked, never installed.

The mirror, proxies and keys are those that the machine's own apt is set up with; its lists, its cache and what it would
install stay as they are.
"""

import re
import shlex
import subprocess
from pathlib import Path

_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_INDEXED = re.compile(r"^(?P<uri>\S+) (?P<codename>\S+) Debian$", re.MULTILINE)


class FetchError(RuntimeError):
    """A runtime cannot be had; the text says why, and what would help."""


def run(*command: str, directory: Path | None = None) -> str:
    """What a command prints.

    Raises:
        FetchError: if there is no such command or it fails, with its own words.
    """
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise FetchError(f"there is no {command[0]}: newer runtimes are Debian's packages, fetched with apt") from None
    except subprocess.CalledProcessError as error:
        raise FetchError(f"{shlex.join(command)} failed: {(error.stderr or error.stdout).strip()[-500:]}") from None
    return done.stdout


def mirror() -> str:
    """Where this machine gets Debian's packages from.

    Raises:
        FetchError: if its apt knows no mirror of Debian.
    """
    if not (found := _mirrors()):
        run("apt-get", "update", "-qq")  # without an index apt does not know whose packages these are
        found = _mirrors()
    if not found:
        raise FetchError("this machine's apt has no source of Debian: newer runtimes are Debian's packages")
    return found[0]


def _mirrors() -> list[str]:
    told = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(LABEL)", "Created-By: Packages")
    suites = {match["uri"]: match["codename"] for match in _INDEXED.finditer(told)}
    return sorted(suites, key=lambda uri: "-" in suites[uri])  # bookworm before bookworm-backports


class Suite:
    """One suite of Debian, with all that apt needs to know of it below *directory*."""

    def __init__(self, name: str, directory: Path, *, sources: bool = False) -> None:
        self.name = name
        self._directory = directory
        self._types = ("deb", "deb-src") if sources else ("deb",)
        folders = {"Dir::State": "state", "Dir::State::lists": "lists", "Dir::Cache": "cache"}
        files = {"Dir::State::status": "status", "Dir::Etc::sourcelist": "sources.list"}
        nothing = ("Dir::Etc::sourceparts", "Dir::Etc::preferences", "Dir::Etc::preferencesparts")
        # apt would change to a user of its own, who may not write here.
        settings = {"APT::Sandbox::User": "root", "Acquire::Languages": "none"}
        settings |= {key: str(directory / name) for key, name in (folders | files).items()}
        settings |= dict.fromkeys(nothing, "/dev/null")
        self._options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        for folder in (*folders.values(), "lists/partial", "cache/archives/partial"):
            (directory / folder).mkdir(parents=True, exist_ok=True)

    def update(self) -> None:
        """Fetch the index of the suite; FetchError if that fails."""
        keys = f"[signed-by={_KEYS}] " if _KEYS.exists() else ""
        where = f"{keys}{mirror()} {self.name} main"
        (self._directory / "sources.list").write_text("".join(f"{kind} {where}\n" for kind in self._types))
        (self._directory / "status").touch()
        run("apt-get", *self._options, "update", "-qq")

    def version(self, package: str) -> str:
        """The version that the suite has now; FetchError if it has none."""
        told = run("apt-cache", *self._options, "show", "--no-all-versions", package)
        if not (found := re.search(r"^Version: (\S+)$", told, re.MULTILINE)):
            raise FetchError(f"Debian's suite {self.name} has no package {package}")
        return found[1]

    def download(self, package: str, version: str) -> Path:
        """Save a package of the suite; FetchError if the suite does not have this version (any more)."""
        folder = self._directory / "packages" / package
        folder.mkdir(parents=True)
        run("apt-get", *self._options, "download", "-qq", f"{package}={version}", directory=folder)
        return next(folder.glob("*.deb"))

    def source(self, package: str, upstream: str, folder: Path) -> list[Path]:
        """Save the source package into *folder*, as what its upstream version is; FetchError if that is another now."""
        told = run("apt-cache", *self._options, "showsrc", "--only-source", package)
        versions = re.findall(r"^Version: (\S+)$", told, re.MULTILINE)
        wanted = [each for each in versions if each.rpartition("-")[0] == upstream]
        if not wanted:
            raise FetchError(f"Debian's suite {self.name} has source versions {versions} of {package}, not {upstream}")
        run("apt-get", *self._options, "source", "-qq", "--download-only", f"{package}={wanted[-1]}", directory=folder)
        return sorted(folder.iterdir())
