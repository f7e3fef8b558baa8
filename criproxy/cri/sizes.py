"""Resources in messages → sizes: CPU and memory in a create, a resize, a status or a stamp.

Values that a field cannot express stay unchanged.
"""

import re

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import Stamp
from criproxy.model.huge_pages import HugePageRequest
from criproxy.model.resources import (
    MAX_MACHINE_MILLI,
    MAX_SHARES,
    MAX_SHARES_MILLI,
    CfsQuota,
    Interval,
    milli_to_quota,
    oom_score_adj_to_request,
    quota_to_milli,
    shares_to_milli,
)
from criproxy.model.workload import Container, QosClass, Sizes


def pod_total(resources: api.LinuxContainerResources) -> int:
    """Return the CPU of a whole pod, in milli, from the *resources* of its sandbox; 0 if they do not have it.

    Shares cannot express more than 256 CPUs; more follows from the quota, if there is one.
    """
    total = shares_to_milli(resources.cpu_shares)
    if total < MAX_SHARES_MILLI:
        return total
    limit = quota_to_milli(resources.cpu_quota, resources.cpu_period) or 0
    return max(total, min(limit, MAX_MACHINE_MILLI))


_PAGES = re.compile(r"([0-9]{1,6})([KMG])i?B")
_SHIFTS = {"K": 10, "M": 20, "G": 30}


def huge_pages(resources: api.LinuxContainerResources) -> tuple[HugePageRequest, ...]:
    """Return the huge pages that a container may use; the kubelet names every size of the machine, most with 0."""
    limits = ((_PAGES.fullmatch(each.page_size), each.limit) for each in resources.hugepage_limits if each.limit > 0)
    return tuple(HugePageRequest(int(size[1]) << _SHIFTS[size[2]], limit) for size, limit in limits if size)


def sizes_after(resources: api.LinuxContainerResources, before: Container, capacity_bytes: int = 0) -> Sizes:
    """Return the sizes of *before* after an update with *resources*, in which 0 means unchanged."""
    shares, quota = resources.cpu_shares, _quota(resources, before)
    cpu_limit = quota_to_milli(quota.quota_us, quota.period_us) if quota else None
    cpu = shares_to_milli(shares) if shares > 0 else before.cpu_milli
    if before.qos is QosClass.GUARANTEED and shares >= MAX_SHARES:
        cpu = max(cpu, cpu_limit or 0)  # shares cannot express more than 256 CPUs; its limit is its request
    memory_limit = _limit(resources.memory_limit_in_bytes) or before.memory_limit_bytes
    request = _memory_request(before, resources.oom_score_adj, memory_limit, capacity_bytes)
    return Sizes(
        cpu_milli=cpu,
        cpu_limit_milli=cpu_limit,
        cpu_quota=quota,
        memory_limit_bytes=memory_limit,
        memory_request_bytes=request,
    )


def _quota(resources: api.LinuxContainerResources, before: Container) -> CfsQuota | None:
    asked = before.asked_quota
    period_us = resources.cpu_period or (asked.period_us if asked else 0)
    return CfsQuota.sent(resources.cpu_quota or (asked.quota_us if asked else 0), period_us)


def _memory_request(before: Container, score: int, limit_bytes: int | None, capacity_bytes: int) -> Interval | None:
    if before.qos is QosClass.GUARANTEED:
        return Interval(limit_bytes, limit_bytes) if limit_bytes else None
    found = oom_score_adj_to_request(score, capacity_bytes) or before.memory_request_bytes
    if found is None or limit_bytes is None:
        return found
    return Interval(min(found.low, limit_bytes), min(found.high, limit_bytes))


def sizes_in_force(resources: api.LinuxContainerResources, before: Container, capacity_bytes: int = 0) -> Sizes:
    """Return the sizes of *before* updated by the *resources* of its status, which may omit values."""
    return sizes_after(_as_asked(resources, before), before, capacity_bytes)


def sizes_of_either(
    resources: api.LinuxContainerResources, asked: Container, before: Sizes, capacity_bytes: int = 0
) -> Sizes:
    """Return the sizes in force, those of *asked* or those of *before*, from the *resources* of its status."""
    found = api.LinuxContainerResources()
    found.CopyFrom(resources)
    if resources.cpu_quota < 0 and asked.sizes.cpu_quota and before.cpu_quota:  # lifted: the quota shows neither
        found.cpu_quota = 0
        if sizes_after(found, asked, capacity_bytes) == asked.sizes:
            return asked.sizes
    return sizes_after(found, asked.resized(before), capacity_bytes)


def _as_asked(resources: api.LinuxContainerResources, before: Container) -> api.LinuxContainerResources:
    """Return the *resources* in force with a lifted quota replaced: by that of *before*, or of its new request.

    Only the kubelet knows the limit of a resize since then; for a Guaranteed container it is the request.
    """
    if resources.cpu_quota >= 0 or before.asked_quota is None:
        return resources
    found = api.LinuxContainerResources()
    found.CopyFrom(resources)
    request = shares_to_milli(resources.cpu_shares)
    found.cpu_quota = before.asked_quota.quota_us
    if before.qos is QosClass.GUARANTEED and request not in (0, before.cpu_milli) and request < MAX_SHARES_MILLI:
        found.cpu_quota = milli_to_quota(request, resources.cpu_period or before.asked_quota.period_us)
    return found


def sizes_of_stamp(stamp: Stamp) -> Sizes:
    """Return the requested sizes in *stamp*."""
    return Sizes(
        cpu_milli=min(stamp.cpu_milli, MAX_MACHINE_MILLI),
        cpu_limit_milli=_limit(min(stamp.cpu_limit_milli, MAX_MACHINE_MILLI)),
        cpu_quota=stamped_quota(stamp),
        memory_limit_bytes=_limit(stamp.memory_limit_bytes),
        memory_request_bytes=_interval(stamp.memory_request_low_bytes, stamp.memory_request_high_bytes),
    )


def stamped_quota(stamp: Stamp) -> CfsQuota | None:
    """Return the requested CPU limit in *stamp*; an old stamp only has the limit in milli-CPU."""
    return CfsQuota.sent(stamp.cpu_quota_us, stamp.cpu_period_us) or CfsQuota.of_limit(
        _limit(min(stamp.cpu_limit_milli, MAX_MACHINE_MILLI))
    )


def _limit(value: int) -> int | None:
    return value if value > 0 else None


def _interval(low: int, high: int) -> Interval | None:
    return Interval(low, high) if 0 <= low <= high and high else None
