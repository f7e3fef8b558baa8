"""What the workloads need: an interpreter with TensorFlow, PyTorch, numpy and scipy, and Debian's redis-server.

Kept in the user's cache, made once; what is there is used without a look at the network. Nothing is installed.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from lab.benefit import standin
from tests.runtimes.debian import FetchError, run

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
TORCH = Path(__file__).with_name("requirements-torch.txt")
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

Say = Callable[[str], None]


def cache_directory() -> Path:
    """Where it is kept: CRIPROXY_BENEFIT_CACHE, else ``criproxy/benefit`` in the user's cache directory."""
    if given := os.environ.get("CRIPROXY_BENEFIT_CACHE"):
        return Path(given).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "criproxy/benefit"


@dataclass(frozen=True)
class Equipment:
    """What lies in *folder*, which need not be complete."""

    folder: Path

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
    def redis(self) -> Path:
        """The root of the unpacked packages."""
        return self.folder / "redis"

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
        libraries += [str(self.folder / "standins"), *map(str, self._redis_libraries())]
        return {"LD_LIBRARY_PATH": ":".join(libraries)}

    def _redis_libraries(self) -> list[Path]:
        return sorted(self.redis.glob("usr/lib/*-linux-gnu"))

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
        run(_base_python(), "-m", "venv", "--clear", str(self.folder / "venv"))
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
            missing |= {line.split()[0] for line in told.splitlines() if self.is_missing(line)}
        if platform.machine() in standin.MACHINES:
            standin.write(self.folder / "standins", missing)

    def is_missing(self, line: str) -> bool:
        """Whether a line of ldd names a library that is neither ours nor in the folders that containers see."""
        _, arrow, place = line.partition(" => ")
        seen = place.startswith(("/lib/", "/lib64/", "/usr/", str(self.folder))) and "/usr/local/" not in place
        return bool(arrow) and not seen

    def _fetch_redis(self, say: Say) -> None:
        say("fetching Debian's redis-server")
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            directory = Path(scratch)
            download = ("apt-get", "-o", "APT::Sandbox::User=root", "download", *_REDIS_PACKAGES)
            try:
                run(*download, directory=directory)
            except FetchError:  # the index may be missing or old
                run("apt-get", "update", "-qq")
                run(*download, directory=directory)
            for package in directory.glob("*.deb"):
                run("dpkg-deb", "--extract", str(package), str(directory / "unpacked"))
            shutil.rmtree(self.redis, ignore_errors=True)
            (directory / "unpacked").replace(self.redis)

    def imports(self, module: str) -> str:
        """Why the interpreter cannot import *module*; empty if it can."""
        lazily = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY); " if module == "torch" else ""
        code = f"{lazily}import {module}"
        done = subprocess.run(
            [self.python, "-c", code],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it ended"])[-1]


def _base_python() -> str:
    """The interpreter of which the rig's own virtual environment was made."""
    return str(Path(sys.executable).resolve())


def main() -> int:
    """Make what is missing; 1, with the reason, if that cannot be done."""
    try:
        Equipment(cache_directory()).make(lambda line: print(f"benefit: {line}", file=sys.stderr, flush=True))
    except FetchError as error:
        print(f"benefit: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
