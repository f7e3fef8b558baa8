"""A folder is watched by the kernel's events, or looked at again and again."""

import asyncio
from pathlib import Path

import pytest
from asyncinotify import Inotify

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
async def test_changes(tmp_path: Path, events: bool, times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way notices the start, and a file that comes after it."""

    def none_left(self: Inotify, *_: object) -> None:
        raise OSError(24, "Too many open files")

    if not events:
        monkeypatch.setattr(Inotify, "__init__", none_left)
        monkeypatch.setattr(Inotify, "__del__", lambda _: None, raising=False)
    news: asyncio.Queue[bool] = asyncio.Queue()
    file = tmp_path / "file"
    watch = FolderWatch(tmp_path, lambda: news.put_nowait(file.exists()), times)
    async with running(watch.run()):
        async with asyncio.timeout(PATIENT_S):
            assert not await news.get()
            file.write_text("")
            while not await news.get():
                pass
