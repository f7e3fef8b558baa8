"""Resources in messages → sizes: CPU and memory in a create, a resize, a status or a stamp.

Values that a field cannot express stay unchanged.
"""

import re
from dataclasses import replace

from criproxy.cri import api_pb2 as api
from criproxy.cri.pods import ContainerSpec
from criproxy.cri.stamp import Stamp
from criproxy.model import resources as units
from criproxy.model.controls import DEFAULTS, SWAP
from criproxy.model.machine.hardware import HugePageRequest
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.workload import Container, Pod, QosClass, Sizes


def pod_total(resources: api.LinuxContainerResources) -> int:
    """Return the CPU of a whole pod, in milli, from the *resources* of its sandbox; 0 if they do not have it.

    Shares cannot express more than 256 CPUs; more follows from the quota, if there is one.
    """
    total = units.shares_to_milli(resources.cpu_shares)
    if total < units.MAX_SHARES_MILLI:
        return total
    limit = units.quota_to_milli(resources.cpu_quota, resources.cpu_period) or 0
    return max(total, min(limit, units.MAX_MACHINE_MILLI))


def total_shown(resources: api.LinuxContainerResources, sizes: Sizes, qos: QosClass) -> int:
    """Return the CPU of the whole pod that a resize to *sizes* shows, in milli; 0 if it does not show it.

    A container without a size of its own has the limit of its pod, which is the request of a Guaranteed pod.
    """
    is_bare = sizes.of_pod and 0 < resources.cpu_shares <= units.MIN_SHARES and resources.cpu_quota > units.MIN_QUOTA_US
    return min(sizes.cpu_limit_milli or 0, units.MAX_MACHINE_MILLI) if is_bare and qos is QosClass.GUARANTEED else 0


_PAGES = re.compile(r"([0-9]{1,6})([KMG])i?B")
_SHIFTS = {"K": 10, "M": 20, "G": 30}


def huge_pages(resources: api.LinuxContainerResources) -> tuple[HugePageRequest, ...]:
    """Return the huge pages that a container may use; the kubelet names every size of the machine, most with 0."""
    limits = ((_PAGES.fullmatch(each.page_size), each.limit) for each in resources.hugepage_limits if each.limit > 0)
    return tuple(HugePageRequest(int(size[1]) << _SHIFTS[size[2]], limit) for size, limit in limits if size)


_NEW = {qos: Container(key="", pod="", name="", qos=qos) for qos in QosClass}
"""A container of each class without a size, as it is before its create."""


def sizes_created(
    resources: api.LinuxContainerResources, sandbox: api.LinuxContainerResources, qos: QosClass, capacity_bytes: int = 0
) -> Sizes:
    """Return the sizes in a create, whose copy of the *sandbox*'s resources has those of the whole pod.

    A container of a Burstable pod has no CPU request of its own if it comes with the least shares, or with the pod's
    limit as its request, which is more than the pod requests; and in both cases with the pod's quota.
    """
    asked = sizes_asked(resources, _NEW[qos], capacity_bytes)
    total = Pod(key="", cpu_total_milli=pod_total(sandbox)).cap_milli if qos is QosClass.BURSTABLE else None
    if total is None:
        return asked
    limit = asked.cpu_limit_milli or 0
    is_of_pod = asked.cpu_milli <= units.MIN_REQUEST_MILLI or asked.cpu_milli == limit > total
    if not is_of_pod or asked.cpu_quota != CfsQuota.sent(sandbox.cpu_quota, sandbox.cpu_period):
        return asked
    return replace(asked, cpu_milli=0, of_pod=True)


def exactly(container: Container, spec: ContainerSpec | None) -> Container:
    """Return a new *container* with the memory request of its *spec*, unless the create shows another one.

    A resize may have changed the pod since the kubelet was asked.
    """
    request_bytes, shown = spec.memory_request_bytes if spec else None, container.memory_request_bytes
    if request_bytes is None or container.qos is not QosClass.BURSTABLE:
        return container
    if shown is not None and not shown.low <= request_bytes <= shown.high:
        return container
    return replace(container, memory_request_bytes=Interval(request_bytes, request_bytes))


def sizes_after(
    resources: api.LinuxContainerResources, before: Container, capacity_bytes: int = 0, total_milli: int | None = None
) -> Sizes:
    """Return the sizes of *before* after an update with *resources*, in which 0 means unchanged.

    *total_milli* is the CPU of its pod, if it is known.
    """
    shares, quota = resources.cpu_shares, _quota(resources, before)
    cpu_limit = units.quota_to_milli(quota.quota_us, quota.period_us) if quota else None
    cpu = units.shares_to_milli(shares) if shares > 0 else before.sizes.cpu_milli
    of_pod, is_bare = before.of_pod, 0 < shares <= units.MIN_SHARES and resources.cpu_quota > 0
    if before.qos is QosClass.GUARANTEED and quota and cpu_limit and (shares >= units.MAX_SHARES or is_bare):
        # Shares cannot express more than 256 CPUs, or are those of a container without a size of its own: in a
        # Guaranteed pod, the limit is the request.
        cpu = max(cpu, cpu_limit) if quota.quota_us > units.MIN_QUOTA_US else cpu
    elif is_bare:
        of_pod = of_pod or bool(total_milli)
    elif shares > units.MIN_SHARES:
        of_pod = of_pod and shares == units.milli_to_shares(cpu_limit or 0)
    memory_limit = _limit(resources.memory_limit_in_bytes) or before.memory_limit_bytes
    request = _memory_request(before, resources.oom_score_adj, memory_limit, capacity_bytes)
    return Sizes(
        cpu_milli=0 if of_pod else cpu,
        cpu_limit_milli=cpu_limit,
        cpu_quota=quota,
        memory_limit_bytes=memory_limit,
        memory_request_bytes=request,
        of_pod=of_pod,
        kubelet_files=before.kubelet_files,
    )


def sizes_asked(
    resources: api.LinuxContainerResources, before: Container, capacity_bytes: int = 0, total_milli: int | None = None
) -> Sizes:
    """Return the sizes of *before* after a message of the kubelet's with *resources*, with the files that it sets.

    A status has those of criproxy, too.
    """
    sizes, files = sizes_after(resources, before, capacity_bytes, total_milli), kubelet_files(resources)
    return replace(sizes, kubelet_files=tuple(sorted(files.union(before.kubelet_files)))) if files else sizes


def kubelet_files(resources: api.LinuxContainerResources) -> set[str]:
    """Return the files of `controls.DEFAULTS` that a message of the kubelet's sets.

    A limit of memory and swap that equals that of memory is what runtimes do without one.
    """
    found = {file for file in resources.unified if file in DEFAULTS}
    if resources.memory_swap_limit_in_bytes not in (0, resources.memory_limit_in_bytes):
        found.add(SWAP)
    return found


def _quota(resources: api.LinuxContainerResources, before: Container) -> CfsQuota | None:
    asked = before.asked_quota
    period_us = resources.cpu_period or (asked.period_us if asked else 0)
    return CfsQuota.sent(resources.cpu_quota or (asked.quota_us if asked else 0), period_us)


def _memory_request(before: Container, score: int, limit_bytes: int | None, capacity_bytes: int) -> Interval | None:
    if before.qos is QosClass.GUARANTEED:
        return Interval(limit_bytes, limit_bytes) if limit_bytes else None
    found, known = units.oom_score_adj_to_request(score, capacity_bytes), before.memory_request_bytes
    if found is None or (known is not None and found.low <= known.low and known.high <= found.high):
        found = known  # perhaps exact, see `exactly`
    if found is None or limit_bytes is None:
        return found
    return Interval(min(found.low, limit_bytes), min(found.high, limit_bytes))


def sizes_in_force(
    resources: api.LinuxContainerResources, before: Container, capacity_bytes: int = 0, total_milli: int | None = None
) -> Sizes:
    """Return the sizes of *before* updated by the *resources* of its status, which may omit values."""
    return sizes_after(_as_asked(resources, before), before, capacity_bytes, total_milli)


def sizes_of_either(
    resources: api.LinuxContainerResources,
    asked: Container,
    before: Sizes,
    capacity_bytes: int = 0,
    total_milli: int | None = None,
) -> Sizes:
    """Return the sizes in force, those of *asked* or those of *before*, from the *resources* of its status."""
    found = api.LinuxContainerResources()
    found.CopyFrom(resources)
    if resources.cpu_quota < 0 and asked.sizes.cpu_quota and before.cpu_quota:  # lifted: the quota shows neither
        found.cpu_quota = 0
        if sizes_after(found, asked, capacity_bytes, total_milli) == asked.sizes:
            return asked.sizes
    return sizes_after(found, asked.resized(before), capacity_bytes, total_milli)


def _as_asked(resources: api.LinuxContainerResources, before: Container) -> api.LinuxContainerResources:
    """Return the *resources* in force with a lifted quota replaced: by that of *before*, or of its new request.

    Only the kubelet knows the limit of a resize since then; for a Guaranteed container it is the request.
    """
    if resources.cpu_quota >= 0 or before.asked_quota is None:
        return resources
    found = api.LinuxContainerResources()
    found.CopyFrom(resources)
    request = units.shares_to_milli(resources.cpu_shares)
    found.cpu_quota = before.asked_quota.quota_us
    is_new = request > units.MIN_REQUEST_MILLI and request not in (before.cpu_milli, before.cpu_limit_milli)
    if before.qos is QosClass.GUARANTEED and is_new and request < units.MAX_SHARES_MILLI:
        found.cpu_quota = units.milli_to_quota(request, resources.cpu_period or before.asked_quota.period_us)
    return found


def sizes_of_stamp(stamp: Stamp) -> Sizes:
    """Return the requested sizes in *stamp*."""
    return Sizes(
        cpu_milli=0 if stamp.of_pod else min(stamp.cpu_milli, units.MAX_MACHINE_MILLI),
        of_pod=stamp.of_pod,
        cpu_limit_milli=_limit(min(stamp.cpu_limit_milli, units.MAX_MACHINE_MILLI)),
        cpu_quota=stamped_quota(stamp),
        memory_limit_bytes=_limit(stamp.memory_limit_bytes),
        memory_request_bytes=_interval(stamp.memory_request_low_bytes, stamp.memory_request_high_bytes),
        kubelet_files=tuple(sorted(file for file in stamp.kubelet_files.split() if file in DEFAULTS)),
    )


def stamped_quota(stamp: Stamp) -> CfsQuota | None:
    """Return the requested CPU limit in *stamp*; an old stamp only has the limit in milli-CPU."""
    return CfsQuota.sent(stamp.cpu_quota_us, stamp.cpu_period_us) or CfsQuota.of_limit(
        _limit(min(stamp.cpu_limit_milli, units.MAX_MACHINE_MILLI))
    )


def _limit(value: int) -> int | None:
    return value if value > 0 else None


def _interval(low: int, high: int) -> Interval | None:
    return Interval(low, high) if 0 <= low <= high and high else None
