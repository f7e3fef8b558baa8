"""The virtual environment of the packages: as `python3 -m venv` makes it, but for a place where it is not yet."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from packager import python, wheels
from packager.source import normalise, run

HOME = Path("opt/criproxy")
"""Below the root of the machine on which the package is installed."""
_CONFIGURATION = "home = {home}\ninclude-system-site-packages = false\nversion = {minor}\n"
_PROGRAM = f"""#!/{HOME}/bin/python
import sys

from criproxy.cli import main

sys.exit(main())
"""
_OF_PIP = ("RECORD", "REQUESTED", "INSTALLER", "direct_url.json")
"""Files in which pip notes what it installed: this is the business of dpkg here, and `pip uninstall` shall refuse."""


def make(root: Path, interpreter: Path | None = None) -> None:
    """Make the virtual environment at its place below *root*; *interpreter*: another one than the distribution's."""
    interpreter = interpreter or wheels.distribution_python()
    home = root / HOME
    shutil.copytree(_libraries(), home / "lib", symlinks=True, dirs_exist_ok=True)
    (home / "pyvenv.cfg").write_text(_CONFIGURATION.format(home=interpreter.parent, minor=wheels.minor()))
    _programs(home / "bin", interpreter)


@cache
def _libraries() -> Path:
    """The folder lib of the environment, which is the same in all packages: made once, and removed after the build."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    site = folder / f"python{wheels.minor()}/site-packages"
    site.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as own:
        wheels.install(site, python.wheel(Path(own)))
    shutil.rmtree(site / "bin")  # programs of the libraries, which name the Python of the build
    for note in (note for name in _OF_PIP for note in site.glob(f"*.dist-info/{name}")):
        note.unlink()
    compile_all(site, folder, f"/{HOME}/lib")
    return folder


def _programs(folder: Path, interpreter: Path) -> None:
    folder.mkdir()
    (folder / "python").symlink_to(interpreter)
    for name in ("python3", f"python{wheels.minor()}"):
        (folder / name).symlink_to("python")
    (folder / "criproxy").write_text(_PROGRAM)
    (folder / "criproxy").chmod(0o755)


def compile_all(folder: Path, top: Path, place: str) -> None:
    """Compile all modules in *folder*: the service sees its libraries read-only, and could not keep what it compiles.

    Compiled files name their sources, as if *top* were at *place*, and the time of their sources, so these get theirs
    before. One process and one seed for hashes, since the order in sets of constants is in the files.
    """
    normalise(folder)
    compiler = (wheels.distribution_python(), "-m", "compileall", "-q", "--invalidation-mode", "timestamp")
    run(*compiler, "-s", top, "-p", place, folder, PYTHONHASHSEED="0")
