"""Fixtures for tests that must not depend on how fast the machine is; a `conftest` that imports one applies it."""

import pytest

from criproxy.deviceplugin.health import health_commands
from criproxy.node.record import outbox
from criproxy.process import children

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def patient_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let who reads the history wait until decisions are explained: nothing is left out of it."""
    monkeypatch.setattr(outbox, "PATIENCE_S", LIMIT_S)


@pytest.fixture(autouse=True)
def patient_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the end of killed programs: none of the tests that use this has one that stays."""
    for module in (children, health_commands):
        monkeypatch.setattr(module, "KILL_S", LIMIT_S)
