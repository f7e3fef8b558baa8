"""Commands of tests wait for their daemon as long as a busy machine makes it take."""

import pytest

from criproxy.cli import daemon_queries
from criproxy.control.node import explanations

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither fall back to the state on disk nor leave out what is still being explained, because of the machine."""
    monkeypatch.setattr(daemon_queries, "PATIENCE_S", LIMIT_S)
    monkeypatch.setattr(explanations, "PATIENCE_S", LIMIT_S)
