"""What the runtime's lists say together: which container is which, what never starts, and what stamps say of pods."""

from collections.abc import Iterable

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import read_stamp
from criproxy.model.resources import MAX_MACHINE_MILLI


def never_to_start(sandboxes: Iterable[api.PodSandbox], items: Iterable[api.Container]) -> frozenset[str]:
    """Containers that were created in a sandbox that is not ready any more, as a reboot leaves them.

    Runtimes start none there, and no call says so: the kubelet makes another sandbox, and removes this one some
    time later.
    """
    ended = {sandbox.id for sandbox in sandboxes if sandbox.state == api.SANDBOX_NOTREADY}
    created = (item for item in items if item.state == api.CONTAINER_CREATED)
    return frozenset(item.id for item in created if item.pod_sandbox_id in ended)


def stamped(items: Iterable[api.Container], reservation: str) -> api.Container | None:
    """The container among *items* that was created under *reservation*."""
    stamps = ((item, read_stamp(item.annotations)) for item in items)
    return next((item for item, stamp in stamps if stamp and stamp.reservation == reservation), None)


def pod_totals(items: Iterable[api.Container]) -> dict[str, int]:
    """By sandbox the CPU of its whole pod, by the stamp of the container that came last."""
    stamps = ((item, read_stamp(item.annotations)) for item in sorted(items, key=lambda item: item.created_at))
    return {
        item.pod_sandbox_id: min(stamp.pod_cpu_milli, MAX_MACHINE_MILLI)
        for item, stamp in stamps
        if stamp and stamp.pod_cpu_milli > 0
    }
