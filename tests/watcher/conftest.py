"""A process that may be killed, and programs whose ends are waited for."""

import subprocess
from collections.abc import Iterator

import pytest

from criproxy.observe import children
from tests.deviceplugin.kubelet import PATIENT_S


@pytest.fixture(autouse=True)
def _patient_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the end of killed programs, however slow the machine is: none of these tests has one that stays."""
    monkeypatch.setattr(children, "KILL_S", PATIENT_S)


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that does nothing."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        yield process
        process.kill()
