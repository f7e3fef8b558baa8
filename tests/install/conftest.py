"""A runtime that answers, made-up nodes beside it, and the process that installs on them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

from tests.install.attempts import Attempts
from tests.install.nodes import MadeUpNode

MakeNode = Callable[..., MadeUpNode]


@pytest.fixture(scope="session")
def node_parent() -> Iterator[Path]:
    """A directory with a short path, since a socket's path has at most 107 bytes; in memory, where fsync is quick."""
    is_usable = Path("/dev/shm").is_dir() and not os.statvfs("/dev/shm").f_flag & os.ST_NOEXEC
    folder = Path(mkdtemp(prefix="node-", dir="/dev/shm" if is_usable else "/tmp"))
    yield folder
    rmtree(folder)


@pytest.fixture(scope="session")
def runtime_socket(node_parent: Path) -> Iterator[Path]:
    """The socket of an embedded runtime, which every node has as its own."""
    path = node_parent / "runtime.sock"
    command = [sys.executable, "-m", "lab.emulator", "--socket", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        yield path
        process.terminate()


@pytest.fixture(scope="session")
def attempts() -> Iterator[Attempts]:
    """The process that installs."""
    found = Attempts()
    yield found
    found.close()


@pytest.fixture
def make_node(attempts: Attempts, node_parent: Path, runtime_socket: Path) -> Iterator[MakeNode]:
    """A function that makes a node of a kind, whose kubelet has started."""
    made = list[Path]()

    def make(kind: str, *, has_package: bool = False) -> MadeUpNode:
        folder = Path(mkdtemp(dir=node_parent))
        made.append(folder)
        node = MadeUpNode(folder, kind, attempts.run)
        node.make(runtime_socket, has_package=has_package)
        node.restart_kubelet()
        (node.state / "log").unlink()
        return node

    yield make
    for folder in made:
        rmtree(folder)
