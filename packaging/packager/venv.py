"""The virtual environment of the Debian package: as `python3 -m venv` makes it, but for a place where it is not yet."""

import shutil
import tempfile
from pathlib import Path

from packager import python, wheels
from packager.source import normalise, run

HOME = Path("opt/criproxy")
"""Below the root of the machine on which the package is installed."""
_CONFIGURATION = "home = /usr/bin\ninclude-system-site-packages = false\nversion = {minor}\n"
_PROGRAM = f"""#!/{HOME}/bin/python
import sys

from criproxy.cli import main

sys.exit(main())
"""
_OF_PIP = ("RECORD", "REQUESTED", "INSTALLER", "direct_url.json")
"""Files in which pip notes what it installed: this is the business of dpkg here, and `pip uninstall` shall refuse."""


def make(root: Path) -> Path:
    """Make the virtual environment at its place below *root*; returns where its libraries are."""
    home = root / HOME
    site = home / f"lib/python{wheels.minor()}/site-packages"
    site.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheels.install(site, python.wheel(Path(scratch)))
    shutil.rmtree(site / "bin")  # programs of the libraries, which name the Python of the build
    for note in (note for name in _OF_PIP for note in site.glob(f"*.dist-info/{name}")):
        note.unlink()
    (home / "pyvenv.cfg").write_text(_CONFIGURATION.format(minor=wheels.minor()))
    _programs(home / "bin")
    _compile(root, site)
    return site


def _programs(folder: Path) -> None:
    folder.mkdir()
    (folder / "python").symlink_to(wheels.distribution_python())
    for name in ("python3", f"python{wheels.minor()}"):
        (folder / name).symlink_to("python")
    (folder / "criproxy").write_text(_PROGRAM)
    (folder / "criproxy").chmod(0o755)


def _compile(root: Path, site: Path) -> None:
    """Compile all modules: the service sees its libraries read-only and would compile them anew at every start.

    One process and one seed for hashes, since the order in sets of constants is in the compiled files. They name the
    time of their sources, so these get theirs before.
    """
    normalise(site)
    compiler = (wheels.distribution_python(), "-m", "compileall", "-q", "--invalidation-mode", "timestamp")
    run(*compiler, "-s", root, "-p", "/", site, PYTHONHASHSEED="0")
