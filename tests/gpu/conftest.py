"""Tests on a machine with an NVIDIA GPU; elsewhere they are not collected, so that no run has to skip them."""

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

FIRST = Path("/dev/nvidia0")
collect_ignore_glob = [] if FIRST.exists() else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that they were left out, and why."""
    if collect_ignore_glob:
        terminalreporter.write_line(f"tests/gpu: not collected, since there is no {FIRST}")


@pytest.fixture
def nvml() -> Iterator[None]:
    """NVML, for questions of the tests' own."""
    pynvml.nvmlInit()
    yield
    pynvml.nvmlShutdown()
