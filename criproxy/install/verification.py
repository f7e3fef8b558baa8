"""Whether an installation works: calls through the socket, calls of the kubelet, and the node's state."""

import asyncio
import base64
import json
import ssl
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import yaml

from criproxy.errors import CriproxyError, reason_of
from criproxy.install.host import Host
from criproxy.install.kubelet import Kubelet
from criproxy.install.steps import Check

_PAUSE_S, _TIMEOUT_S = 1.0, 10.0
_ENDS = 2
"""How often the kubelet may end after its restart: once, as a program may that starts before another one is ready."""
_PROPERTIES = "ActiveState,SubState,NRestarts,Result,ExecMainStatus"


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one installation; each is repeated until it succeeds or the time is over."""

    host: Host
    timeout_s: float
    kubelet: Kubelet

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
        name, server = self.kubelet.node_name, ApiServer.of(Path(kubeconfig))
        try:
            status, body = server.get(f"/api/v1/nodes/{quote(name, safe='')}")
        except (OSError, HTTPException) as error:
            return f"the API server at {server.url} does not answer: {reason_of(error)}"
        if status != 200:
            return f"the API server answers {status} for node {name}: {_message(body)}"
        conditions = json.loads(body).get("status", {}).get("conditions", ())
        ready: dict[str, Any] = next((each for each in conditions if each.get("type") == "Ready"), {})
        if ready.get("status") != "True":
            return f"node {name} is not Ready: {ready.get('message', 'no condition Ready')}"
        if _seconds(ready.get("lastHeartbeatTime")) < int(since_s):
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


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The API server of a kubeconfig file's current context, with certificates, tokens and files with them."""

    cluster: dict[str, Any]
    user: dict[str, Any]
    folder: Path
    """To which the paths of files are relative."""

    @classmethod
    def of(cls, kubeconfig: Path) -> "ApiServer":
        """Return the server of a file.

        Raises:
            CriproxyError: it cannot be read, or has no current context.
        """
        try:
            data = yaml.safe_load(kubeconfig.read_text())
            context = _named(data, "contexts", data["current-context"])["context"]
            cluster = _named(data, "clusters", context["cluster"])["cluster"]
            return cls(cluster, _named(data, "users", context["user"])["user"] or {}, kubeconfig.parent)
        except OSError as error:
            raise CriproxyError(f"--kubeconfig {kubeconfig}: {error.strerror}") from error
        except (yaml.YAMLError, KeyError, TypeError) as error:
            raise CriproxyError(f"--kubeconfig {kubeconfig} is no usable kubeconfig file: {error!r}") from error

    @property
    def url(self) -> str:
        """Its address."""
        return str(self.cluster.get("server"))

    def get(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        token = self.user.get("token") or (self._text(self.user["tokenFile"]) if "tokenFile" in self.user else "")
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token.strip()}"} if token else {})
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=self._tls()))
        try:
            with opener.open(Request(f"{self.url.rstrip('/')}{path}", headers=headers), timeout=_TIMEOUT_S) as answer:  # noqa: S310
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()
        except URLError as error:
            raise error.reason if isinstance(error.reason, OSError) else error from None

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._pem(self.cluster, "certificate-authority") or None)
        if self.cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate := self._pem(self.user, "client-certificate"):
            with tempfile.NamedTemporaryFile("w") as file:  # ssl reads certificates from files only; mode 0600
                file.write(f"{certificate}\n{self._pem(self.user, 'client-key')}\n")
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def _pem(self, values: dict[str, Any], name: str) -> str:
        """Return a certificate or key, which is in the file itself or in another one."""
        if data := values.get(f"{name}-data"):
            return base64.b64decode(data).decode()
        return self._text(values[name]) if name in values else ""

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text()


def _named(data: dict[str, Any], group: str, name: str) -> dict[str, Any]:
    named = [each for each in data[group] if each["name"] == name]
    if not named:
        raise KeyError(f"{group}: {name}")
    return dict(named[0])


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return "no message"


def _seconds(timestamp: Any) -> float:  # noqa: ANN401 - JSON
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()
    except ValueError:
        return 0.0
