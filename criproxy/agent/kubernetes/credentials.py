"""What a request needs: server, token and TLS context; read again every minute, and when the server refuses them."""

import asyncio
import math
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic

from criproxy.agent.kubernetes.kubeconfig import Cluster, checked_server, read_kubeconfig, read_service_account
from criproxy.agent.kubernetes.plugin import Given, Plugin, run_plugin
from criproxy.errors import ConfigError, CriproxyError, reason_of
from criproxy.host.patience import Patience

RELOAD_S = 60.0
"""How old what was read may be: the kubelet replaces tokens, others certificates."""
READ_S = 5.0
"""Timeout for reading the files."""
PLUGIN_S = 30.0
"""Timeout for a plugin; it runs on when the request that wanted it has ended, for the next one."""
REFUSED_S = 10.0
"""Pause between two refreshes because the server refuses what was read."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one request needs."""

    server: str
    """URL without a slash at its end."""
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    """None: without TLS."""
    tls_server_name: str = ""


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
        self._given: tuple[Plugin, Given] | None = None
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
        return self._given is not None and self._given[1].until_s <= monotonic()

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
            access = Access(cluster.server, cluster.token, tls, cluster.tls_server_name)
            self._made = (cluster, access)
        return self._made[1]

    async def _with_plugin(self, cluster: Cluster, plugin: Plugin, *, anew: bool) -> Cluster:
        if anew or self._given is None or self._given[0] != plugin or self._is_over():
            run = partial(run_plugin, plugin, self._plugin_s)
            self._given = (plugin, await self._patience.wait(str(plugin), run, self._plugin_s + READ_S))
        given = self._given[1]
        found = replace(cluster, token=given.token or cluster.token)
        return replace(found, certificate=given.certificate, key=given.key) if given.certificate else found


def credentials_of(kubeconfig: Path | None) -> Credentials:
    """Return those of a kubeconfig, or of the pod if there is none."""
    return Credentials(partial(read_kubeconfig, kubeconfig) if kubeconfig else read_service_account)


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
        authority = cluster.authority.decode("ascii", "ignore") if cluster.authority is not None else None
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
