"""What the log has of a daemon that refuses requests of the watcher, or does not answer them."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from criproxy.deviceplugin.daemon_client import asking
from criproxy.deviceplugin.daemon_client.asking import DaemonClient
from criproxy.errors import CriproxyError
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.node import Log

REFUSED, UNANSWERED = "refuses a request", "gets no answer"


class Asked(Daemon):
    """A daemon that refuses an incident of a container for which it has a reason, and who asks it."""

    def __init__(self, socket: Path) -> None:
        super().__init__(socket)
        self.log = Log()
        self.refuses = {"web": "web runs no more", "batch": "the disk is full"}
        self.client = DaemonClient(str(socket), self.log)

    async def ask(self, *about: str) -> None:
        """Ask of grants, and report an incident of each container."""
        with suppress(CriproxyError):
            await self.client.ask("device-grants", {})
        for each in about:
            self.error = self.refuses.get(each, "")
            with suppress(CriproxyError):
                await self.client.ask("quota-incident", {"container_id": each})

    def lines(self, text: str) -> int:
        """How many lines of the log have *text*."""
        return sum(text in str(line) for line in self.log.lines)


@pytest.fixture
async def asked(folder: Path) -> AsyncIterator[Asked]:
    """Return one that listens."""
    found = Asked(folder / "control.sock")
    await found.start()
    yield found
    await found.stop()


async def test_a_refusal_is_said_once(asked: Asked) -> None:
    """Whatever the daemon answers meanwhile to other commands, and about other containers."""
    for _ in range(3):
        await asked.ask("web", "other", "batch")

    assert [asked.lines(text) for text in (REFUSED, "web runs no more", "the disk is full")] == [2, 1, 1]


async def test_after_a_restart_of_the_daemon_a_refusal_is_said_again(asked: Asked) -> None:
    """Each command says once that there is no answer."""
    await asked.ask("web")
    await asked.stop()
    for _ in range(2):
        await asked.ask("web")
    await asked.start()
    await asked.ask("web")

    assert asked.lines(UNANSWERED) == 2
    assert asked.lines("web runs no more") == 2


async def test_refusals_that_are_remembered_are_bounded(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten first."""
    monkeypatch.setattr(asking, "MOST_REFUSALS", 2)
    asked.refuses = {each: f"{each} is none" for each in ("one", "two", "three")}
    await asked.ask("one", "two", "three", "three", "one")

    assert [asked.lines(f"{each} is none") for each in asked.refuses] == [2, 1, 1]
