"""Commands of tests wait for their daemon as long as a busy machine makes it take."""

import pytest

from criproxy.cli import client
from tests.deviceplugin.fake_nvml import fake_nvml, nvml_library
from tests.patience import LIMIT_S, patient_readers

__all__ = ["fake_nvml", "nvml_library", "patient_readers"]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not fall back to the state on disk because of the machine."""
    monkeypatch.setattr(client, "PATIENCE_S", LIMIT_S)
