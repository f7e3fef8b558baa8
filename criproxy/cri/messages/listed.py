"""Evaluates the runtime's lists: containers of reservations, containers that never start, and totals of pods."""

from collections.abc import Iterable

from criproxy.cri import api_pb2 as api
from criproxy.cri.messages.stamp import read_stamp
from criproxy.model.resources import MAX_MACHINE_MILLI


def never_to_start(sandboxes: Iterable[api.PodSandbox], items: Iterable[api.Container]) -> frozenset[str]:
    """Return created containers in sandboxes that are no longer ready, for example after a reboot.

    Runtimes do not start containers there, but no call reports that: the kubelet creates another sandbox, and removes
    this one some time later.
    """
    ended = {sandbox.id for sandbox in sandboxes if sandbox.state == api.SANDBOX_NOTREADY}
    created = (item for item in items if item.state == api.CONTAINER_CREATED)
    return frozenset(item.id for item in created if item.pod_sandbox_id in ended)


def stamped(items: Iterable[api.Container], reservation: str) -> api.Container | None:
    """Return the container among *items* whose stamp has *reservation*."""
    stamps = ((item, read_stamp(item.annotations)) for item in items)
    return next((item for item, stamp in stamps if stamp and stamp.reservation == reservation), None)


def pod_totals(items: Iterable[api.Container]) -> dict[str, int]:
    """Return the CPU of the whole pod by sandbox, from the stamp of its newest container."""
    stamps = ((item, read_stamp(item.annotations)) for item in sorted(items, key=lambda item: item.created_at))
    return {
        item.pod_sandbox_id: min(stamp.pod_cpu_milli, MAX_MACHINE_MILLI)
        for item, stamp in stamps
        if stamp and stamp.pod_cpu_milli > 0
    }
