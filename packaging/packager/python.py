"""Wheel and sdist, by setuptools, and the same bytes in every build."""

import gzip
import sys
import tarfile
import tempfile
from pathlib import Path

from packager.source import DATE_VARIABLE, copy_to, date_s, run, version

_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
_BACKEND = "import os, sys; os.chdir(sys.argv.pop(1)); " + _BUILD


def wheel(target: Path) -> Path:
    """Write the wheel to the folder *target*."""
    with tempfile.TemporaryDirectory() as scratch:
        copy_to(Path(scratch) / "source")
        build(Path(scratch) / "source", "build_wheel", target)
    return target / f"criproxy-{version()}-py3-none-any.whl"


def sdist(target: Path) -> Path:
    """Write the sdist to the folder *target*."""
    name = f"criproxy-{version()}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        copy_to(Path(scratch) / "source")
        build(Path(scratch) / "source", "build_sdist", Path(scratch))
        _normalise(Path(scratch) / name, target / name)
    return target / name


def build(source: Path, hook: str, target: Path) -> None:
    """Let setuptools build from the folder *source*; *hook* is its name in PEP 517."""
    when = {DATE_VARIABLE: str(date_s())}
    run(sys.executable, "-c", _BACKEND, source, hook, target.resolve(), **when)


def _normalise(source: Path, target: Path) -> None:
    """Copy an archive without what depends on the build: owners, times, the order of files."""
    when_s = date_s()
    with (
        tarfile.open(source) as found,
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=when_s, fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(found.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = when_s, 0, 0, "root", "root"
            member.pax_headers = {}
            written.addfile(member, found.extractfile(member) if member.isfile() else None)
