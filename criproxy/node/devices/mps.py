"""Clients of MPS at a create. Without the daemon's directory, the runtime would make an empty one, and CUDA would fail.

Therefore the create is refused then, and the kubelet retries.
"""

from dataclasses import dataclass

from criproxy.devices.boundary import Refusal
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.mps_client import mps_client, with_shared_memory
from criproxy.errors import StatusCode
from criproxy.host.patience import Hangs, Patience
from criproxy.node.context import Context
from criproxy.node.devices.evidence import Gathered


@dataclass(frozen=True, slots=True)
class MpsClients:
    """Checks what our device plugin wrote into a create; values from others are not checked."""

    context: Context
    patience: Patience

    async def check(self, asked: DeviceRequest, given: Gathered) -> DeviceRequest | Refusal:
        """Return the create as it continues, or why it is refused.

        Not earlier: the daemon of a resource may start long after Allocate. Not later: the runtime creates every
        missing directory of a mount, and the daemon would then find a directory that it did not create.
        """
        client = mps_client(asked) if given.is_joined else None
        if client is None:
            return asked
        settings = self.context.settings
        path = settings.host_root / client.pipe.lstrip("/")
        try:
            is_there = await self.patience.wait(client.pipe, path.is_dir, settings.device_limits.scan_s)
        except Hangs as error:
            return _refused(str(error))
        except OSError as error:
            return _refused(f"the directory {client.pipe} cannot be accessed: {error.strerror}")
        if not is_there:
            return _refused(f"the directory {client.pipe} does not exist on this host: start the MPS control daemon")
        return with_shared_memory(asked, client)


def _refused(why: str) -> Refusal:
    return Refusal(StatusCode.FAILED_PRECONDITION, f"it is a client of CUDA MPS, and {why}")
