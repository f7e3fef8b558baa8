"""A process that may be killed, and programs whose ends are waited for."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.patience import patient_kills

__all__ = ["patient_kills"]


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that does nothing."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        yield process
        process.kill()
