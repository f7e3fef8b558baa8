"""What the log has of a daemon that refuses requests of the watcher, or does not answer them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from criproxy.api.control_socket import ControlServer
from criproxy.deviceplugin.daemon_client import daemon_client as module
from criproxy.deviceplugin.daemon_client.daemon_client import DaemonClient
from criproxy.errors import CriproxyError
from criproxy.wire.sockets import listen
from tests.deviceplugin.node import Log

REFUSED, UNANSWERED = "refuses a request", "gets no answer"


class Asked:
    """A daemon that refuses an incident of a container for which it has a reason, and knows every grant."""

    def __init__(self, socket: Path) -> None:
        self.log = Log()
        self.refuses = {"web": "web runs no more", "batch": "the disk is full"}
        self.daemon = DaemonClient(str(socket), self.log)
        self._socket = socket

    async def start(self) -> None:
        """Listen from now on."""
        self._listener = listen(str(self._socket), 0o600)
        self._server = ControlServer({"device-grants": self._grants, "quota-incident": self._incident})
        await self._server.start(self._listener.sock)

    async def stop(self) -> None:
        """Be gone."""
        await self._server.stop()
        self._listener.close()

    async def ask(self, *about: str) -> None:
        """Ask of grants, and report an incident of each container."""
        with suppress(CriproxyError):
            await self.daemon.ask("device-grants", {})
        for each in about:
            with suppress(CriproxyError):
                await self.daemon.ask("quota-incident", {"container_id": each})

    def said(self, text: str) -> int:
        """How many lines of the log have *text*."""
        return sum(text in str(line) for line in self.log.lines)

    async def _grants(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def _incident(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if reason := self.refuses.get(arguments["container_id"]):
            raise CriproxyError(reason)
        return {}


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    """Return one that listens, on a path that is short enough for sockets."""
    with TemporaryDirectory(prefix="d") as name:
        found = Asked(Path(name) / "control.sock")
        await found.start()
        yield found
        await found.stop()


async def test_a_refusal_is_said_once(asked: Asked) -> None:
    """Whatever the daemon answers meanwhile to other commands, and about other containers."""
    for _ in range(3):
        await asked.ask("web", "other", "batch")

    assert [asked.said(text) for text in (REFUSED, "web runs no more", "the disk is full")] == [2, 1, 1]


async def test_after_a_restart_of_the_daemon_a_refusal_is_said_again(asked: Asked) -> None:
    """Each command says once that there is no answer."""
    await asked.ask("web")
    await asked.stop()
    for _ in range(2):
        await asked.ask("web")
    await asked.start()
    await asked.ask("web")

    assert asked.said(UNANSWERED) == 2
    assert asked.said("web runs no more") == 2


async def test_refusals_that_are_remembered_are_bounded(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten first."""
    monkeypatch.setattr(module, "MOST_REFUSALS", 2)
    asked.refuses = {each: f"{each} is none" for each in ("one", "two", "three")}
    await asked.ask("one", "two", "three", "three", "one")

    assert [asked.said(f"{each} is none") for each in asked.refuses] == [2, 1, 1]
