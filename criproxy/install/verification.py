"""Whether an installation works: calls through the socket, calls of the kubelet, and the node's state."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from criproxy.errors import CriproxyError, reason_of
from criproxy.install.host import Host
from criproxy.install.planning.steps import Check

_PAUSE_S = 1.0
_ENDS = 2
"""How often the kubelet may end after its restart: once, as a program may that starts before another one is ready."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one installation; each is repeated until it succeeds or the time is over."""

    host: Host
    timeout_s: float
    node_name: str
    kubelet: str
    """The unit that runs the kubelet."""

    def __call__(self, check: Check, since_s: float) -> None:
        """Return if the answer is yes.

        Args:
            check: the question.
            since_s: what happened before, in seconds since the epoch, does not count.

        Raises:
            CriproxyError: it is still no after `timeout_s`, or when the kubelet has ended twice; says what the last
                answer was.
        """
        ask = {"version": self._version, "calls": self._calls, "ready": self._ready}[check.what]
        end_s, restarts = time.monotonic() + self.timeout_s, self._kubelet().restarts
        while refusal := ask(check.about, since_s):
            if check.what != "version" and (ended := self._kubelet().why_ended(restarts)):
                raise CriproxyError(f"{refusal}: {ended}: 'journalctl -u {self.kubelet}' shows the reason")
            if time.monotonic() + _PAUSE_S > end_s:
                raise CriproxyError(f"{refusal} (for {self.timeout_s:g} s)")
            time.sleep(_PAUSE_S)

    def _version(self, socket: str, _: float) -> str:
        from criproxy.cri.runtime import RuntimeClient

        async def ask() -> None:
            client = RuntimeClient(f"unix://{self.host.path(socket)}", max(_PAUSE_S, self.timeout_s))
            try:
                await client.version()
            finally:
                await client.close()

        return _refusal(lambda: asyncio.run(ask()))

    def _calls(self, program: str, since_s: float) -> str:
        """Ask the daemon for its last call; the one of the check of the version is from before the restart."""
        status, stdout, stderr = self.host.run([program, "status", "--format", "json"])
        try:
            kubelet = json.loads(stdout)["kubelet"]
            age_s = kubelet and kubelet["last_call_s"]
        except (ValueError, KeyError, TypeError):
            return f"'criproxy status' exited with status {status}: {stderr.strip()}"
        if age_s is None or age_s > time.time() - since_s:
            return "the kubelet has restarted, but has not called criproxy"
        return ""

    def _ready(self, kubeconfig: str, since_s: float) -> str:
        from criproxy.install.node_ready import why_not_ready

        return why_not_ready(Path(kubeconfig), self.node_name, since_s)

    def _kubelet(self) -> "_UnitState":
        names = "--property=ActiveState,SubState,NRestarts,Result,ExecMainStatus"
        _, stdout, _ = self.host.run(["systemctl", "show", names, self.kubelet])
        return _UnitState(self.kubelet, dict(line.split("=", 1) for line in stdout.splitlines() if "=" in line))


@dataclass(frozen=True, slots=True)
class _UnitState:
    """A unit's properties."""

    unit: str
    values: Mapping[str, str]

    @property
    def restarts(self) -> int:
        """How often systemd has started it again; 0 if systemd is too old to tell."""
        return int(self.values.get("NRestarts") or 0)

    def why_ended(self, before: int) -> str:
        """Return that it ends again and again, or for good, since it had *before* restarts; empty if it does not."""
        more = self.restarts - before + (self.values.get("SubState") == "auto-restart")
        if self.values.get("ActiveState") != "failed" and more < _ENDS:
            return ""
        how = f"{self.values.get('Result')}, status {self.values.get('ExecMainStatus')}"
        return f"{self.unit} ends again and again ({how})"


def _refusal(ask: Callable[[], None]) -> str:
    try:
        ask()
    except (CriproxyError, OSError) as error:
        return reason_of(error, with_path=True)
    return ""
