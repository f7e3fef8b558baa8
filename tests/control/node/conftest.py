"""What tests of the node's state need."""

import pytest

from criproxy.control.node import explanations


@pytest.fixture(autouse=True)
def _patient_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reader of the history wait until decisions are explained, however slow the machine is."""
    monkeypatch.setattr(explanations, "PATIENCE_S", 60.0)
