"""Whether an installation works: calls through the socket, calls of the kubelet, and the node's state."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from criproxy.errors import CriproxyError, reason_of
from criproxy.install.host import Host
from criproxy.install.steps import Check

_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one installation; each is repeated until it succeeds or the time is over."""

    host: Host
    timeout_s: float
    node_name: str

    def __call__(self, check: Check, since_s: float) -> None:
        """Return if the answer is yes.

        Args:
            check: the question.
            since_s: what happened before, in seconds since the epoch, does not count.

        Raises:
            CriproxyError: it is still no after `timeout_s`; says what the last answer was.
        """
        ask = {"version": self._version, "calls": self._calls, "ready": self._ready}[check.what]
        end_s = time.monotonic() + self.timeout_s
        while refusal := ask(check.about, since_s):
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


def _refusal(ask: Callable[[], None]) -> str:
    try:
        ask()
    except (CriproxyError, OSError) as error:
        return reason_of(error, with_path=True)
    return ""
