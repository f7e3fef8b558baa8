"""A Python that needs nothing of the machine but its kernel, so that the same files run in the image and on its host.

It is Debian's, with Debian's C library beside it: the program names the loader and the folder of its libraries, which
would otherwise be those of the host, whatever version that has.
"""

import shutil
import tempfile
from pathlib import Path

from packager import debian, venv, wheels
from packager.source import run

HOME = venv.HOME / "runtime"
_UNUSED = "__pycache__ config-* ensurepip idlelib lib2to3 pydoc_data sitecustomize.py test tkinter turtledemo".split()
_WITHOUT_LIBRARY = "readline _curses _curses_panel _dbm _gdbm nis".split()
"""Modules whose libraries `packager.debian` leaves out."""


def python() -> Path:
    """The place of the program where it is installed."""
    return Path("/") / HOME / "bin" / wheels.distribution_python().name


def make(root: Path) -> None:
    """Make it at its place below *root*."""
    home = root / HOME
    (home / "bin").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        unpacked = Path(scratch) / "root"
        debian.unpack(unpacked)
        _libraries(unpacked, home / "lib")
        _modules(unpacked, home)
        shutil.copytree(unpacked / "usr/share/doc", home / "share/doc", symlinks=True, ignore=_all_but_licences)
        shutil.copy(unpacked / "usr/bin" / python().name, home / "bin")
        _bind(home, Path(scratch))


def _libraries(unpacked: Path, target: Path) -> None:
    """Put all shared libraries into one folder, each under the names that lead to it, and once."""
    target.mkdir()
    folders = [triplet for top in ("lib", "usr/lib") for triplet in sorted((unpacked / top).glob("*-linux-gnu*"))]
    found = [library for folder in folders for library in sorted(folder.glob("*.so*"))]
    linked = {library.resolve() for library in found if library.is_symlink()}
    for library in found:
        if library not in linked:
            shutil.copy(library.resolve(), target / library.name)


def _modules(unpacked: Path, home: Path) -> None:
    """Put Python's own modules there, compiled, without those that a daemon does not use."""
    folder = home / "lib" / python().name
    shutil.copytree(
        unpacked / "usr/lib" / python().name, folder, symlinks=False, ignore=shutil.ignore_patterns(*_UNUSED)
    )
    for name in _WITHOUT_LIBRARY:
        for module in (folder / "lib-dynload").glob(f"{name}.*.so"):
            module.unlink()
    venv.compile_all(folder, home, f"/{HOME}")


def _bind(home: Path, scratch: Path) -> None:
    """Let the program use the loader and the libraries that are beside it.

    DT_RPATH, and not DT_RUNPATH, is also for the libraries of libraries: those of the host, such as NVIDIA's NVML, find
    the C library that is loaded already.
    """
    (loader,) = (each.name for each in (home / "lib").glob("ld-linux*.so*"))
    debian.unpack(scratch / "tools", *debian.TOOLS)
    patchelf = scratch / "tools/usr/bin/patchelf"
    folder = Path("/") / HOME / "lib"
    run(
        patchelf,
        "--force-rpath",
        "--set-rpath",
        folder,
        "--set-interpreter",
        folder / loader,
        home / "bin" / python().name,
    )


def _all_but_licences(folder: str, names: list[str]) -> list[str]:
    """What is not to be copied: all files except those with the licences."""
    return [name for name in names if name != "copyright" and not (Path(folder) / name).is_dir()]
