"""A daemon that answers the device plugin, and keeps what it says."""

from asyncio import Event
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from criproxy.devices.usage.values import Grant
from criproxy.errors import CriproxyError
from criproxy.model.text.plain import to_plain
from criproxy.process.control_socket import ControlServer
from criproxy.wire.sockets import listen
from tests.deviceplugin.news import News

COMMANDS = (
    *("free-cpus", "device-plugin", "device-inventory", "device-incident"),
    *("device-usage", "device-grants", "quota-incident"),
)


class Daemon(News):
    """Listens from `start` on.

    Args:
        socket: its path.
        grants: what containers have.
        lacks: the commands that it does not know, because it is older.
        answers: by command, with ``_`` for ``-``.
    """

    def __init__(self, socket: Path, *grants: Grant, lacks: Collection[str] = (), **answers: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.grants = grants
        self.incidents: list[Mapping[str, Any]] = []
        """Those about quotas that it says it has stored."""
        self.act = True
        """What it answers to them."""
        self.error = ""
        """Why it takes none; empty: it does."""
        self.answers = answers
        self.hangs: Collection[str] = ()
        """Commands that get no answer."""
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self._lacks = lacks
        self._socket = socket

    async def start(self) -> None:
        """Listen."""
        self._listener = listen(str(self._socket), 0o600)
        self._server = ControlServer({name: self._command(name) for name in COMMANDS if name not in self._lacks})
        await self._server.start(self._listener.sock)

    async def stop(self) -> None:
        """Be gone."""
        await self._server.stop()
        self._listener.close()

    def said(self, command: str) -> list[Mapping[str, Any]]:
        """The arguments of all calls of a command so far."""
        return [arguments for name, arguments in self.told if name == command]

    async def until_said(self, command: str, times: int = 1) -> list[Mapping[str, Any]]:
        """Return the arguments of all calls of a command when there are so many."""
        await self.until(lambda: len(self.said(command)) >= times)
        return self.said(command)

    async def until_use(self, text: str) -> Mapping[str, Any]:
        """Return the first report of the use of cards that has *text*."""
        await self.until(lambda: text in str(self.said("device-usage")))
        return next(each for each in self.said("device-usage") if text in str(each))

    async def until_report(self, wanted: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Return a report on what is offered, when there is one as *wanted*."""
        await self.until(lambda: any(map(wanted, self.said("device-inventory"))))
        return [each for each in self.said("device-inventory") if wanted(each)][-1]

    def _command(self, name: str) -> Any:  # noqa: ANN401
        async def answer(arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
            self.told.append((name, arguments))
            self.wake()
            if name in self.hangs:
                await Event().wait()
            match name:
                case "device-grants":
                    return {"containers": to_plain(self.grants), "incidents": self.incidents}
                case "quota-incident" if self.error:
                    raise CriproxyError(self.error)
                case "quota-incident":
                    return {"stored": True, "act": self.act}
            return self.answers.get(name.replace("-", "_"), {})

        return answer
