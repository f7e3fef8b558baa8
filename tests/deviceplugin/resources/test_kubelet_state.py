"""A folder is watched by the kernel's events, or looked at again and again."""

import asyncio
from pathlib import Path

import pytest

from criproxy.deviceplugin.resources.kubelet_state import FolderWatch
from criproxy.deviceplugin.server.state import Times
from tests.deviceplugin.news import PATIENT_S, running


@pytest.mark.parametrize(
    ("events", "times"),
    [
        pytest.param(True, Times(poll_s=3600, beside_events_s=3600), id="events"),
        pytest.param(True, Times(poll_s=3600, beside_events_s=0.01), id="looks beside events"),
        pytest.param(False, Times(poll_s=0.01, beside_events_s=3600), id="looks without events"),
    ],
)
async def test_changes(tmp_path: Path, events: bool, times: Times) -> None:
    """Each way notices the start, and a file that comes after it."""
    news: asyncio.Queue[bool] = asyncio.Queue()
    file = tmp_path / "file"
    watch = FolderWatch(tmp_path, lambda: news.put_nowait(file.exists()), times, events=events)
    async with running(watch.run()):
        async with asyncio.timeout(PATIENT_S):
            assert not await news.get()
            file.write_text("")
            while not await news.get():
                pass
