"""What the workloads need: an interpreter with TensorFlow, PyTorch, numpy and scipy, and Debian's redis-server.

Kept in the user's cache, made once; what is there is used without a look at the network. Nothing is installed.
"""

import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

from lab.cache import directory, download
from lab.provenance import ROOT, said
from tests.runtimes.debian import run

REQUIREMENTS = Path(__file__).with_name("programs") / "requirements.txt"
TORCH = Path(__file__).with_name("programs") / "requirements-torch.txt"
"""Installed without what they depend on: PyTorch's package asks for all of CUDA."""
_REDIS_PACKAGES = (
    *("redis-server", "redis-tools"),
    *("libatomic1", "libjemalloc2", "liblua5.1-0", "liblzf1", "lua-bitop", "lua-cjson"),
)
"""The program is in redis-tools; the others are those of its libraries that a small Debian lacks."""
_DIGITS = """
import numpy, sys
from sklearn.datasets import load_digits
digits = load_digits()
images = numpy.kron(digits.images / 16, numpy.ones((4, 4))).astype("float32")
numpy.savez(sys.argv[1], images=images, labels=digits.target.astype("int64"))
"""
"""1797 images of handwritten digits, part of scikit-learn, enlarged to 32 x 32 pixels."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
MACHINES = {"x86_64": 62, "aarch64": 183}
"""What ``uname -m`` says → the number that an ELF file has for it."""
_ET_DYN, _PT_LOAD, _PT_DYNAMIC, _READ = 3, 1, 2, 4
_WRITE = 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_SYMBOL_BYTES = 24

Say = Callable[[str], None]


@dataclass(frozen=True)
class Equipment:
    """What lies in *folder*, which need not be complete."""

    folder: Path = field(default_factory=partial(directory, "benefit"))

    @property
    def python(self) -> Path:
        """The interpreter of the workloads; the machine's own where there is no other."""
        made = self.folder / "venv/bin/python"
        return made if made.exists() else Path(sys.executable).resolve()

    @property
    def complete(self) -> bool:
        """Whether everything was made, from the requirements as they are now."""
        return self._stamp.exists() and self._stamp.read_text() == self._wanted

    @property
    def digits(self) -> Path:
        """The images for training."""
        return self.folder / "digits.npz"

    @property
    def redis_server(self) -> Path:
        """The program, in the unpacked packages."""
        return self.folder / "redis/usr/bin/redis-server"

    @property
    def _stamp(self) -> Path:
        return self.folder / "stamp"

    @cached_property
    def _wanted(self) -> str:
        return sha256(REQUIREMENTS.read_bytes() + TORCH.read_bytes()).hexdigest()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which its programs find their libraries."""
        libraries = [str(path) for path in sorted(self.folder.glob("venv/lib/python3*/site-packages/nvidia/*/lib"))]
        libraries += [
            str(self.folder / "standins"),
            *map(str, sorted((self.folder / "redis").glob("usr/lib/*-linux-gnu"))),
        ]
        return {"LD_LIBRARY_PATH": ":".join(libraries)}

    def run(self, *arguments: str, told: str = "") -> "subprocess.CompletedProcess[str]":
        """Run its Python in this checkout; the program reads what it is *told*."""
        command, environment = [str(self.python), *arguments], {**os.environ, **self.environment}
        return subprocess.run(
            command, cwd=ROOT, env=environment, input=told, capture_output=True, text=True, check=False
        )

    def make(self, say: Say) -> None:
        """Make what is missing.

        Raises:
            FetchError: it cannot be had.
        """
        if self.complete:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        say(f"making the workloads' environment in {self.folder}: about 3 GB, a few minutes")
        self._make_venv(say)
        self._fetch_redis(say)
        self._stamp.write_text(self._wanted)

    def _make_venv(self, say: Say) -> None:
        run(str(Path(sys.executable).resolve()), "-m", "venv", "--clear", str(self.folder / "venv"))
        pip = (str(self.folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        say("installing TensorFlow, numpy, scipy, scikit-learn and matplotlib")
        run(*pip, "--requirement", str(REQUIREMENTS))
        say("installing PyTorch without CUDA")
        run(*pip, "--no-deps", "--requirement", str(TORCH))
        self._make_standins()
        run(str(self.python), "-c", _DIGITS, str(self.digits))

    def _make_standins(self) -> None:
        """A library for each that PyTorch is linked with and containers do not have."""
        libraries = sorted(self.folder.glob("venv/lib/python3*/site-packages/torch/lib/*.so"))
        environment = {**os.environ, **self.environment}
        missing: set[str] = set()
        for each in libraries:
            told = subprocess.run(["ldd", each], env=environment, capture_output=True, text=True, check=False).stdout
            missing |= {line.split()[0] for line in told.splitlines() if self._is_missing(line)}
        if platform.machine() in MACHINES:
            (folder := self.folder / "standins").mkdir(exist_ok=True)
            for name in missing:
                (folder / name).write_bytes(standin(name))

    def _is_missing(self, line: str) -> bool:
        """Whether a line of ldd names a library that is neither ours nor in the folders that containers see."""
        _, arrow, place = line.partition(" => ")
        seen = place.startswith(("/lib/", "/lib64/", "/usr/", str(self.folder))) and "/usr/local/" not in place
        return bool(arrow) and not seen

    def _fetch_redis(self, say: Say) -> None:
        say("fetching Debian's redis-server")
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            unpacked = Path(scratch) / "unpacked"
            for package in download(Path(scratch), *_REDIS_PACKAGES):
                run("dpkg-deb", "--extract", str(package), str(unpacked))
            shutil.rmtree(self.folder / "redis", ignore_errors=True)
            unpacked.replace(self.folder / "redis")

    def missing(self, needs: Collection[str]) -> dict[str, str]:
        """What of *needs* (modules, or ``redis``) is not there → why."""
        no_redis = "" if self.redis_server.exists() else f"{self.redis_server} is not there"
        problems = {need: no_redis if need == "redis" else self._imports(need) for need in sorted(needs)}
        return {need: problem for need, problem in problems.items() if problem}

    def versions(self) -> dict[str, str]:
        """Versions of what workloads use."""
        found = {}
        if self.redis_server.exists():
            environment = {**os.environ, **self.environment}
            found["redis"] = said(str(self.redis_server), "--version", **environment).split(" sha=")[0]
        if self.complete:
            lines = [*REQUIREMENTS.read_text().splitlines(), *TORCH.read_text().splitlines()]
            pinned = {name: wanted for name, _, wanted in (line.partition("==") for line in lines)}
            found |= {name: pinned[name] for name in ("numpy", "scipy", "tensorflow-cpu", "torch") if name in pinned}
            found["workloads' python"] = said(str(self.python), "--version")
        return found

    def _imports(self, module: str) -> str:
        """Why the interpreter cannot import *module*; empty if it can."""
        lazily = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY); " if module == "torch" else ""
        done = self.run("-c", f"{lazily}import {module}")
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it ended"])[-1]


def standin(name: str) -> bytes:
    """An empty ELF library that calls itself *name*, in place of CUDA's gigabytes.

    PyTorch's package for Linux is linked with the libraries of CUDA, and does not start without files of these names.
    On a machine without cards it calls none of their functions, so that libraries without any are enough: the program
    loads them and, told to bind functions only where they are called, never looks into them.
    """
    strings = b"\0" + name.encode() + b"\0"
    symbols = bytes(_SYMBOL_BYTES)  # the first symbol of every table stands for none
    hashed = struct.pack("<4I", 1, 1, 0, 0)  # one chain, which is empty
    begin = _HEADER.size + 2 * _SEGMENT.size
    at_symbols = (begin + 15) // 16 * 16
    at_hash = at_symbols + len(symbols)
    at_strings = at_hash + len(hashed)
    at_dynamic = (at_strings + len(strings) + 15) // 16 * 16
    entries = [
        *((_DT_HASH, at_hash), (_DT_STRTAB, at_strings), (_DT_SYMTAB, at_symbols)),
        *((_DT_STRSZ, len(strings)), (_DT_SYMENT, _SYMBOL_BYTES), (_DT_SONAME, 1), (0, 0)),
    ]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    size = at_dynamic + len(dynamic)
    image = bytearray(size)
    counts = (_HEADER.size, _SEGMENT.size, 2, 0, 0, 0)
    _HEADER.pack_into(image, 0, _IDENTITY, _ET_DYN, MACHINES[platform.machine()], 1, 0, _HEADER.size, 0, 0, *counts)
    # The loader writes into the dynamic section: one segment, readable and writable.
    _SEGMENT.pack_into(image, _HEADER.size, _PT_LOAD, _READ | _WRITE, 0, 0, 0, size, size, 1 << 16)
    place = (at_dynamic, at_dynamic, at_dynamic, len(dynamic), len(dynamic), 8)
    _SEGMENT.pack_into(image, _HEADER.size + _SEGMENT.size, _PT_DYNAMIC, _READ | _WRITE, *place)
    for at, part in ((at_symbols, symbols), (at_hash, hashed), (at_strings, strings), (at_dynamic, dynamic)):
        image[at : at + len(part)] = part
    return bytes(image)
