"""Asks the kubelet which ids containers have."""

from criproxy.cri.podresources import PodresourcesClient, PodresourcesError
from criproxy.deviceplugin.taken import InUse
from criproxy.observe.logger import Log

ASK_TIMEOUT_S = 10.0
"""That of the kubelet's own clients."""


class KubeletInUse:
    """The ids in use, as the kubelet's podresources says.

    Args:
        client: connected to the kubelet's socket.
        log: gets one line when the kubelet gives no answer.
        timeout_s: for an answer.
    """

    def __init__(self, client: PodresourcesClient, log: Log, timeout_s: float = ASK_TIMEOUT_S) -> None:
        self._client = client
        self._log = log
        self._timeout_s = timeout_s
        self._silent = False

    async def __call__(self) -> InUse | None:
        """Ids by resource; None: the kubelet gives no answer."""
        try:
            found = await self._client.in_use(self._timeout_s)
        except PodresourcesError as error:
            if not self._silent:
                text = "the kubelet does not say which devices are in use: those that are gone stay listed"
                self._log.warning(text, reason=str(error))
            self._silent = True
            return None
        self._silent = False
        return found


async def not_asked() -> InUse | None:
    """Stands in for `KubeletInUse` where the kubelet is not to be asked."""
    return None
