"""Queries the kubelet's podresources API for the IDs that containers have."""

from collections.abc import Callable
from pathlib import Path

from criproxy.cri.podresources import PodresourcesClient, PodresourcesError
from criproxy.deviceplugin.resources.plugin_manager import InUse
from criproxy.process.logger import Log

ASK_TIMEOUT_S = 10.0
"""The timeout of the kubelet's own clients."""


class KubeletInUse:
    """The IDs in use according to the kubelet's podresources API.

    Args:
        socket: The kubelet's socket; None to query nothing.
        log: Gets one line when the kubelet stops answering.
        timeout_s: Limit for an answer.
        connect: Makes a client for a socket.
    """

    def __init__(
        self,
        socket: Path | None,
        log: Log,
        timeout_s: float = ASK_TIMEOUT_S,
        connect: Callable[[Path], PodresourcesClient] = PodresourcesClient,
    ) -> None:
        self.socket = socket
        """May be changed; the next query uses the new one."""
        self._client: PodresourcesClient | None = None
        self._connect = connect
        self._log = log
        self._timeout_s = timeout_s
        self._has_failed = False

    async def __call__(self) -> InUse | None:
        """Return the IDs by resource; None if the kubelet gives no answer."""
        if self._client is None or self._client.socket != self.socket:
            await self.close()
            self._client = self._connect(self.socket) if self.socket else None
        if self._client is None:
            return None
        try:
            found = await self._client.in_use(self._timeout_s)
        except PodresourcesError as error:
            if not self._has_failed:
                text = "the kubelet does not report which devices are in use: devices that no longer exist stay listed"
                self._log.warning(text, reason=str(error))
            self._has_failed = True
            return None
        self._has_failed = False
        return found

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
