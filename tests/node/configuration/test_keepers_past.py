"""Configurations that came into force are kept for ``criproxy history config``."""

from pathlib import Path

import pytest

from criproxy.node.configuration.keepers import PastConfigurations
from criproxy.node.settings import Loaded
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from criproxy.store.configurations import GoodFile, read_all
from tests.node.world import RecordingLog


@pytest.mark.parametrize("broken", [False, True])
async def test_the_end_writes_what_is_not_written_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """A daemon that is stopped right after a reload loses nothing; a disk that fails is not waited for."""
    monkeypatch.setattr("criproxy.node.configuration.keepers.CLOSE_S", 0.1 if broken else 60.0)
    place = tmp_path / "none" if broken else tmp_path
    past, tasks = PastConfigurations(place, RecordingLog()), Tasks(RecordingLog(), Failures())
    tasks.forever("keep past configurations", past.run)
    for text in ("first", "last"):
        past.note(GoodFile(text=text), "static", Loaded(file="/etc/policy.yaml", hash=text, at_s=1.0), "file")
    await past.close()
    await tasks.stop()

    assert [each.text for each in ([] if broken else read_all(place))] == ([] if broken else ["first", "last"])
