"""What came into force is kept: the last good file for the next start, and all for ``criproxy history config``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from criproxy.node.configuration.keepers import ConfigurationKeeper
from criproxy.node.settings import Loaded
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from criproxy.store.configurations import GoodFile, read_all, read_good
from tests.node.world import RecordingLog, soon

LIMIT_S = 60.0
GOOD = GoodFile(text="policy: static\n", source="/etc/criproxy/policy.yaml", configuration="abc")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real disk may take seconds for a write while other tests use it."""
    monkeypatch.setattr("criproxy.node.configuration.keepers.CLOSE_S", LIMIT_S)


@asynccontextmanager
async def supervised(keeping: ConfigurationKeeper) -> AsyncIterator[Failures]:
    """*keeping* at work as in the daemon; yields what fails of it."""
    failures = Failures()
    tasks = Tasks(keeping.log, failures)
    tasks.forever("keep the policy file", keeping.run)
    try:
        yield failures
        await keeping.close()
    finally:
        await tasks.stop()


async def test_what_was_removed_is_kept_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removes the state directory: that is a problem until it is there again, and then the file is, too."""
    for pause in ("CHECK_S", "RETRY_S"):
        monkeypatch.setattr(f"criproxy.node.configuration.keepers.{pause}", 0.01)
    state = tmp_path / "state"
    state.mkdir()
    keeping = ConfigurationKeeper(state, RecordingLog())
    async with supervised(keeping):
        keeping.keep(GOOD)
        await soon(lambda: read_good(state) == GOOD)

        state.rename(tmp_path / "removed")  # at once: the next write may have begun
        await soon(lambda: bool(keeping.problem))
        assert keeping.problem == f"{state}/last-good.json cannot be written: No such file or directory"

        state.mkdir()
        await soon(lambda: read_good(state) == GOOD and not keeping.problem)


async def test_a_failure_of_our_own_is_not_the_end_of_keeping(tmp_path: Path) -> None:
    """It is counted, and what is to be kept is written afterwards."""
    keeping = ConfigurationKeeper(Path("/no\0path"), RecordingLog())
    async with supervised(keeping) as failures:
        keeping.keep(GOOD)
        await soon(lambda: failures.counts["watcher"] > 0)

        keeping.state_dir = tmp_path
        await soon(lambda: read_good(tmp_path) == GOOD)


@pytest.mark.parametrize("broken", [False, True])
async def test_the_end_writes_what_is_not_kept_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """A daemon that is stopped right after a reload loses nothing; a disk that fails is not waited for."""
    monkeypatch.setattr("criproxy.node.configuration.keepers.CLOSE_S", 0.1 if broken else LIMIT_S)
    state = tmp_path / "none" if broken else tmp_path
    keeping = ConfigurationKeeper(state, RecordingLog())
    async with supervised(keeping):
        for text in ("first", "last"):
            good = GoodFile(text=text)
            keeping.keep(good)
            keeping.note(good, "static", Loaded(file="/etc/policy.yaml", hash=text, at_s=1.0), "file")

    if not broken:
        assert read_good(tmp_path) == GoodFile(text="last")
        assert [each.text for each in read_all(tmp_path)] == ["first", "last"]
