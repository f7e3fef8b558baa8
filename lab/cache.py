"""What rigs fetch once and keep in the user's cache directory, such as Debian's packages, which are never installed."""

import os
from pathlib import Path

from tests.runtimes.debian import FetchError, run


def directory(name: str) -> Path:
    """Where it is kept: CRIPROXY_NAME_CACHE, else ``criproxy/NAME`` in the user's cache directory."""
    if given := os.environ.get(f"CRIPROXY_{name.upper()}_CACHE"):
        return Path(given).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "criproxy" / name


def download(folder: Path, *packages: str) -> list[Path]:
    """Save packages of this machine's Debian into *folder*; an index that is missing or stale is refreshed.

    Raises:
        FetchError: they cannot be had.
    """
    # apt would change to a user of its own, who may not write here.
    command = ("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *packages)
    try:
        run(*command, directory=folder)
    except FetchError:
        run("apt-get", "update", "-qq")
        run(*command, directory=folder)
    return list(folder.glob("*.deb"))
