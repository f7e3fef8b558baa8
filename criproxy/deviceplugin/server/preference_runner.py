"""Runs a preference with a time limit: in a thread, since it computes, and without waiting for one that hangs."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server.resource import Resource
from criproxy.deviceplugin.server.settings import Counts, Times
from criproxy.devices.evidence.allocation import InvalidRequest
from criproxy.host.patience import Hangs, Patience
from criproxy.process.failures import Failures
from criproxy.process.logger import Log

PreferenceRequest = api.ContainerPreferredAllocationRequest
Ids = tuple[str, ...]


class PreferenceRunner:
    """Chooses the devices for GetPreferredAllocation of one resource."""

    def __init__(self, log: Log, failures: Failures, times: Times, counts: Counts) -> None:
        self._log = log
        self._failures = failures
        self._times = times
        self._counts = counts
        self._patience = Patience()
        self._lock = asyncio.Lock()
        self._late = False

    async def choose(self, resource: Resource, request: PreferenceRequest) -> Ids:
        """Return the IDs for one container.

        Raises:
            InvalidRequest: The preference rejects the request.
        """
        if resource.preference is None:
            return plain_order(resource, request)
        work = partial(_run_preference, resource.preference, request)
        try:
            async with self._lock:
                answered, ids = await self._patience.wait(resource.name, work, self._times.preference_s)
        except Hangs as error:
            self._counts.preferences_late += 1
            self._log_late(resource.name, error)
            return plain_order(resource, request)
        except InvalidRequest:
            raise
        except Exception as error:  # noqa: BLE001 (the pod can have cards in spite of any error)
            self._log_failure(resource.name, error)
            return plain_order(resource, request)
        self._late = False
        # The thread may just have finished the work for another request, whose call was cancelled.
        return ids if answered is request else plain_order(resource, request)

    def _log_late(self, resource: str, error: Hangs) -> None:
        if not self._late:
            text = "choosing devices took too long: the kubelet gets them in plain order"
            self._log.warning(text, resource=resource, reason=str(error))
        self._late = True

    def _log_failure(self, resource: str, error: Exception) -> None:
        self._counts.preferences_failed += 1
        if self._failures.add("devices", f"criproxy failed at GetPreferredAllocation of '{resource}': {error!r}"):
            text = "choosing devices failed: the kubelet gets them in plain order"
            self._log.error(text, resource=resource, exc_info=error)


def plain_order(resource: Resource, request: PreferenceRequest) -> Ids:
    """Return the required IDs, and the first free ones in the order of the resource."""
    required, free = tuple(request.must_include_deviceIDs), frozenset(request.available_deviceIDs)
    others = (each for each in resource.devices if each in free and each not in required)
    return (*required, *islice(others, max(request.allocation_size - len(required), 0)))


def _run_preference(
    prefer: Callable[[Sequence[str], Sequence[str], int], Sequence[str]], request: PreferenceRequest
) -> tuple[PreferenceRequest, Ids]:
    required = tuple(request.must_include_deviceIDs)
    answer = prefer(tuple(request.available_deviceIDs), required, request.allocation_size)
    return request, tuple(map(str, answer))
