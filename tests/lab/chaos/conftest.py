"""A process that waits for the start of its container."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process as runc leaves it between create and start: it opens a FIFO, and nobody comes."""
    os.mkfifo(tmp_path / "init")
    with subprocess.Popen(["runc", "init"], executable="/bin/cat", cwd=tmp_path) as process:
        while Path(f"/proc/{process.pid}/cmdline").read_text() != "runc\0init\0":
            time.sleep(0.001)  # the kernel tells nobody when it has set that, in the middle of the exec
        yield process
        process.kill()
