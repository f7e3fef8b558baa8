"""Asks the API server whether a node is Ready, with the credentials of a kubeconfig file."""

import base64
import http.client
import json
import ssl
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

from criproxy.errors import CriproxyError, reason_of

_TIMEOUT_S = 10.0


def why_not_ready(kubeconfig: Path, node: str, since_s: float) -> str:
    """Return why the node is not Ready by a report of its kubelet since *since_s*; empty if it is.

    Args:
        kubeconfig: its current context is used; certificates, tokens and files with them are supported.
        node: the name of the node.
        since_s: seconds since the epoch, on the clock of this node, which is also the clock of its kubelet's reports.

    Raises:
        CriproxyError: the file cannot be used.
    """
    cluster, user = _context(kubeconfig)
    try:
        status, body = _get(cluster, user, kubeconfig.parent, f"/api/v1/nodes/{quote(node, safe='')}")
    except (OSError, http.client.HTTPException) as error:
        return f"the API server at {cluster.get('server')} does not answer: {reason_of(error)}"
    if status != http.client.OK:
        return f"the API server answers {status} for node {node}: {_message(body)}"
    conditions = json.loads(body).get("status", {}).get("conditions", ())
    ready: dict[str, Any] = next((each for each in conditions if each.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        return f"node {node} is not Ready: {ready.get('message', 'no condition Ready')}"
    if _seconds(ready.get("lastHeartbeatTime")) < int(since_s):
        return f"the kubelet of node {node} has not reported since its restart"
    return ""


def check_kubeconfig(kubeconfig: Path) -> None:
    """Check that the file can be used, before anything is changed.

    Raises:
        CriproxyError: it cannot be read, or has no current context.
    """
    _context(kubeconfig)


def _context(kubeconfig: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the cluster and the user of the current context."""
    try:
        data = yaml.safe_load(kubeconfig.read_text())
        context = _named(data, "contexts", data["current-context"])["context"]
        cluster = _named(data, "clusters", context["cluster"])["cluster"]
        return cluster, _named(data, "users", context["user"])["user"] or {}
    except OSError as error:
        raise CriproxyError(f"--kubeconfig {kubeconfig}: {error.strerror}") from error
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise CriproxyError(f"--kubeconfig {kubeconfig} is no usable kubeconfig file: {error!r}") from error


def _named(data: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    found = [each for each in data[kind] if each["name"] == name]
    if not found:
        raise KeyError(f"{kind}: {name}")
    return dict(found[0])


def _get(cluster: dict[str, Any], user: dict[str, Any], folder: Path, path: str) -> tuple[int, bytes]:
    server = urlsplit(cluster["server"])
    where = (server.hostname or "", server.port)
    if server.scheme == "https":
        context = _tls(cluster, user, folder)
        connection = http.client.HTTPSConnection(*where, timeout=_TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(*where, timeout=_TIMEOUT_S)  # type: ignore[assignment]  # its base
    token = user.get("token") or (_text(folder, user["tokenFile"]) if "tokenFile" in user else "")
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token.strip()}"} if token else {})
    try:
        connection.request("GET", f"{server.path.rstrip('/')}{path}", headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _tls(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _pem(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority or None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = (_pem(user, name, folder) for name in ("client-certificate", "client-key"))
    if certificate:
        with tempfile.NamedTemporaryFile("w") as file:  # ssl reads certificates from files only; mode 0600
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(values: dict[str, Any], name: str, folder: Path) -> str:
    """Return a certificate or key, which is in the file itself or in another one."""
    if data := values.get(f"{name}-data"):
        return base64.b64decode(data).decode()
    return _text(folder, values[name]) if name in values else ""


def _text(folder: Path, name: str) -> str:
    return (folder / name).read_text()


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
