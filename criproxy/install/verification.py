"""Whether an installation works: calls through the socket, calls of the kubelet, and the node's state."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from criproxy.errors import CriproxyError, reason_of
from criproxy.install.host import Host
from criproxy.install.kubelet import Kubelet
from criproxy.install.steps import Check

ReadNode = Callable[[str], dict[str, Any] | None]
"""Returns the Node object with a name, None if there is none; raises CriproxyError if the API server does not say."""
_PAUSE_S = 1.0
_ENDS = 2
"""How often the kubelet may end after its restart: once, as a program may that starts before another one is ready."""
_PROPERTIES = "ActiveState,SubState,NRestarts,Result,ExecMainStatus"


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one installation; each is repeated until it succeeds or the time is over."""

    host: Host
    timeout_s: float
    kubelet: Kubelet
    read_node: ReadNode | None
    """None: nobody asks whether the node is Ready."""

    def __call__(self, check: Check, since_s: float) -> None:
        """Return if the answer is yes.

        Args:
            check: the question.
            since_s: what happened before, in seconds since the epoch, does not count.

        Raises:
            CriproxyError: it is still no after `timeout_s`, or when the kubelet has ended twice; says what the last
                answer was.
        """
        asks = {"version": self._version, "calls": self._calls, "plugin": self._plugin, "ready": self._ready}
        ask = asks[check.what]
        end_s, restarts = time.monotonic() + self.timeout_s, self._restarts(self._properties())
        while refusal := ask(check.about, since_s):
            if check.what != "version" and (ended := self._ended(restarts)):
                raise CriproxyError(f"{refusal}: {ended}: 'journalctl -u {self.kubelet.unit}' shows the reason")
            if time.monotonic() + _PAUSE_S > end_s:
                remedy = f"; {check.remedy}" if check.remedy else ""
                raise CriproxyError(f"{refusal} (for {self.timeout_s:g} s){remedy}")
            time.sleep(_PAUSE_S)

    def _version(self, socket: str, _: float) -> str:
        from criproxy.cri.runtime import RuntimeClient

        async def ask() -> None:
            client = RuntimeClient(f"unix://{self.host.path(socket)}", max(_PAUSE_S, self.timeout_s))
            try:
                await client.version()
            finally:
                await client.close()

        try:
            asyncio.run(ask())
        except (CriproxyError, OSError) as error:
            return reason_of(error, with_path=True)
        return ""

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

    def _plugin(self, program: str, _: float) -> str:
        """Ask the daemon why the runtime does not ask it."""
        status, stdout, stderr = self.host.run([program, "status", "--format", "json"])
        try:
            notices = json.loads(stdout)["notices"]
            return next((each["text"] for each in notices if each["kind"] == "nri" and each["wrong"]), "")
        except (ValueError, KeyError, TypeError):
            return f"'criproxy status' exited with status {status}: {stderr.strip()}"

    def _ready(self, kubeconfig: str, since_s: float) -> str:
        """Ask the API server for a report of the kubelet; its times are by the clock of this node."""
        assert self.read_node is not None, "the check is planned only with a kubeconfig"
        name, since = self.kubelet.node_name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since_s))
        try:
            node = self.read_node(name)
        except CriproxyError as error:
            return f"node {name} cannot be read with {kubeconfig}: {error}"
        if node is None:
            return f"the API server knows no node {name}"
        conditions = node.get("status", {}).get("conditions", ())
        ready: dict[str, Any] = next((each for each in conditions if each.get("type") == "Ready"), {})
        if ready.get("status") != "True":
            return f"node {name} is not Ready: {ready.get('message', 'no condition Ready')}"
        if str(ready.get("lastHeartbeatTime") or "") < since:
            return f"the kubelet of node {name} has not reported since its restart"
        return ""

    def _properties(self) -> dict[str, str]:
        _, stdout, _ = self.host.run(["systemctl", "show", f"--property={_PROPERTIES}", self.kubelet.unit])
        return dict(line.split("=", 1) for line in stdout.splitlines() if "=" in line)

    def _restarts(self, properties: dict[str, str]) -> int:
        """Return how often systemd has started the kubelet again; 0 if systemd is too old to tell."""
        return int(properties.get("NRestarts") or 0)

    def _ended(self, before: int) -> str:
        """Return that the kubelet ends again and again, or for good, since it had *before* restarts; else empty."""
        found = self._properties()
        restarts = self._restarts(found) - before + (found.get("SubState") == "auto-restart")
        if found.get("ActiveState") != "failed" and restarts < _ENDS:
            return ""
        how = f"{found.get('Result')}, status {found.get('ExecMainStatus')}"
        return f"{self.kubelet.unit} ends again and again ({how})"
