"""What a request needs: server, token and TLS context; read again every minute, and when the server refuses them."""

import asyncio
import json
import math
import os
import signal
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from criproxy.agent.kubernetes.kubeconfig import (
    MOST_BYTES,
    Cluster,
    Plugin,
    checked_server,
    read_kubeconfig,
    read_service_account,
)
from criproxy.errors import ConfigError, CriproxyError, reason_of
from criproxy.host.patience import Patience

RELOAD_S = 60.0
"""How old what was read may be: the kubelet replaces tokens, others certificates."""
READ_S = 5.0
"""Timeout for reading the files."""
PLUGIN_S = 30.0
"""Timeout for a plugin; it runs on when the request that wanted it has ended, for the next one."""
EARLY_S = 30.0
"""How long before its end what a plugin gave is replaced."""
LEAST_S = 60.0
"""How long it is used in any case, such as where the clock of the node is wrong."""
REFUSED_S = 10.0
"""Pause between two refreshes because the server refuses what was read."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one request needs."""

    server: str
    """URL without a slash at its end."""
    token: str = ""
    tls: ssl.SSLContext | None = None
    """None: without TLS."""
    tls_server_name: str = ""
    namespace: str = ""
    """That of the pod or of the kubeconfig's context; empty: none is given."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What a plugin has given."""

    token: str
    certificate: bytes
    key: bytes
    until_s: float
    """On the clock of the event loop; infinity: until the server refuses it."""


class Credentials:
    """The way to an API server.

    Args:
        source: reads it; may block.
        reload_s: how old it may be.
        plugin_s: timeout for a plugin.
    """

    def __init__(self, source: Callable[[], Cluster], reload_s: float = RELOAD_S, plugin_s: float = PLUGIN_S) -> None:
        self._source, self._reload_s, self._plugin_s = source, reload_s, plugin_s
        self._patience = Patience()
        self._read_s = self._refused_s = -math.inf
        self._made: tuple[Cluster, Access] | None = None
        self._given: tuple[Plugin, _Given] | None = None
        self._refreshing: asyncio.Task[Access] | None = None

    async def access(self, refused: Access | None = None) -> Access:
        """Return what is valid now; concurrent callers share one refresh, which goes on if they give up.

        Args:
            refused: what the server has refused; if nothing else can be had, it is returned again.

        Raises:
            CriproxyError: there are no credentials; the text says why.
        """
        now_s = asyncio.get_running_loop().time()
        made = self._made[1] if self._made else None
        is_refused = made is not None and made is refused and now_s - self._refused_s >= REFUSED_S
        if made and not is_refused and now_s - self._read_s < self._reload_s and not self._is_over():
            return made
        if self._refreshing is None:
            if is_refused:
                self._refused_s = now_s
            self._refreshing = asyncio.create_task(self._refresh(anew=is_refused))
            self._refreshing.add_done_callback(self._refreshed)
        return await asyncio.shield(self._refreshing)

    async def close(self) -> None:
        """End a refresh."""
        if (task := self._refreshing) is not None:
            task.cancel()
            await asyncio.wait({task})

    def _refreshed(self, task: "asyncio.Task[Access]") -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # whoever still waits gets it

    def _is_over(self) -> bool:
        return self._given is not None and self._given[1].until_s <= asyncio.get_running_loop().time()

    async def _refresh(self, *, anew: bool) -> Access:
        try:
            access = await self._make(anew=anew)
        except CriproxyError:
            if anew or self._made is None or self._is_over():
                raise
            access = self._made[1]  # files that are being replaced are no reason to be nobody
        self._read_s = asyncio.get_running_loop().time()
        return access

    async def _make(self, *, anew: bool) -> Access:
        cluster = await self._patience.wait("the credentials", self._source, READ_S)
        if cluster.plugin is not None:
            cluster = await self._with_plugin(cluster, cluster.plugin, anew=anew)
        if self._made is None or self._made[0] != cluster:
            tls = await self._patience.wait("the certificates", partial(tls_context, cluster), READ_S)
            access = Access(cluster.server, cluster.token, tls, cluster.tls_server_name, cluster.namespace)
            self._made = (cluster, access)
        return self._made[1]

    async def _with_plugin(self, cluster: Cluster, plugin: Plugin, *, anew: bool) -> Cluster:
        if anew or self._given is None or self._given[0] != plugin or self._is_over():
            self._given = (plugin, await run_plugin(plugin, self._plugin_s))
        given = self._given[1]
        found = replace(cluster, token=given.token or cluster.token)
        return replace(found, certificate=given.certificate, key=given.key) if given.certificate else found


def in_cluster() -> Credentials:
    """Return those of the pod's service account."""
    return Credentials(read_service_account)


def from_kubeconfig(file: Path) -> Credentials:
    """Return those of the current context of *file*."""
    return Credentials(partial(read_kubeconfig, file))


def credentials_of(kubeconfig: Path | None) -> Credentials:
    """Return those of a kubeconfig, or of the pod if there is none."""
    return from_kubeconfig(kubeconfig) if kubeconfig else in_cluster()


def plain(server: str, token: str = "") -> Credentials:
    """Return the way to a server without TLS, such as that of a test.

    Raises:
        ConfigError: *server* is no URL.
    """
    cluster = Cluster(checked_server(server, "the API server"), token=token)
    return Credentials(lambda: cluster)


def tls_context(cluster: Cluster) -> ssl.SSLContext | None:
    """Return the TLS context; None for a server without TLS. May block.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """
    if not cluster.server.startswith("https:"):
        return None
    try:
        authority = cluster.authority.decode("ascii") if cluster.authority is not None else None
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{cluster.server}: the certificate authority cannot be used: {reason_of(error)}") from error
    # Certificates of clusters often lack what Python 3.13 has begun to ask for (RFC 5280, 4.2.1.1).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if cluster.certificate:
        _load_certificate(context, cluster)
    return context


def _load_certificate(context: ssl.SSLContext, cluster: Cluster) -> None:
    # OpenSSL reads files only; this one is in memory.
    descriptor = os.memfd_create("client-certificate")
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(cluster.certificate + b"\n" + cluster.key)
        # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{cluster.server}: the client certificate cannot be used: {reason_of(error)}") from error
    finally:
        os.close(descriptor)


async def run_plugin(plugin: Plugin, timeout_s: float) -> _Given:
    """Return what a plugin prints.

    Raises:
        ConfigError: it cannot be run, fails, takes too long, or prints something else.
    """
    what = f"the credential plugin {plugin.command[0]}"
    spec: dict[str, object] = {"interactive": False}
    spec |= {"cluster": plugin.cluster} if plugin.cluster is not None else {}
    told = json.dumps({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec})
    try:
        process = await asyncio.create_subprocess_exec(
            *plugin.command,
            env={**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": told},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what} cannot be run: {reason_of(error)}") from error
    try:
        async with asyncio.timeout(timeout_s):
            assert process.stdout is not None
            output = await _read_at_most(process.stdout, MOST_BYTES)
            status = await process.wait()
    except TimeoutError:
        raise ConfigError(f"{what} has not ended within {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if status:
        raise ConfigError(f"{what} has ended with status {status}; run it by hand to see why")
    return _given(what, plugin, output)


async def _read_at_most(stream: asyncio.StreamReader, most_bytes: int) -> bytes:
    found = bytearray()
    while chunk := await stream.read(1 << 16):
        if len(found) + len(chunk) > most_bytes:
            break
        found += chunk
    return bytes(found)


def _given(what: str, plugin: Plugin, output: bytes) -> _Given:
    try:
        found = json.loads(output)
        status: dict[str, Any] = found["status"]
        version, expires = found["apiVersion"], status.get("expirationTimestamp")
        left_s = datetime.fromisoformat(expires).timestamp() - time() if expires else math.inf
        given = _Given(
            token=str(status.get("token") or ""),
            certificate=str(status.get("clientCertificateData") or "").encode(),
            key=str(status.get("clientKeyData") or "").encode(),
            until_s=asyncio.get_running_loop().time() + max(left_s - EARLY_S, LEAST_S),
        )
    except (ValueError, TypeError, KeyError, AttributeError):  # without the text, which may be a secret
        raise ConfigError(f"{what} does not print an ExecCredential with a status") from None
    if version != plugin.api_version:
        raise ConfigError(
            f"{what} prints an ExecCredential of {version}, and the kubeconfig wants {plugin.api_version}"
        )
    if not given.token and not (given.certificate and given.key):
        raise ConfigError(f"{what} gives neither a token nor a certificate with its key")
    return given
