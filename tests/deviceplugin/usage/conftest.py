"""A process that may be killed."""

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that does nothing."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        yield process
        process.kill()
