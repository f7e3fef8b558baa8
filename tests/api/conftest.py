"""The history is read as soon as the last decisions are explained, however long a busy machine takes for that."""

import pytest

from criproxy.control.node import explanations


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out nothing that is still being explained."""
    monkeypatch.setattr(explanations, "PATIENCE_S", 60.0)
