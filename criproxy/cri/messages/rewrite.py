"""Grant → message: writes only the fields that criproxy owns.

These are ``cpuset_cpus`` and ``cpuset_mems`` of the container's resources, ``cpu_quota`` and ``cpu_period`` if the
quota is or was lifted, and the annotation of `cri.stamp`. Messages are edited in place after parsing: everything else,
including unknown fields, stays unchanged.
"""

from criproxy.cri import api_pb2 as api
from criproxy.cri.messages.stamp import ANNOTATION, Stamp
from criproxy.model.resources import LIFTED_US, CfsQuota


def place(request: api.CreateContainerRequest, cpus: str, mems: str, stamp: Stamp, *, lift: bool = False) -> bytes:
    """Write *cpus* and *mems* (kernel list format) and the stamp into *request*.

    An empty string leaves that field as the kubelet set it; with *lift* it gets no CFS quota.
    """
    resources = request.config.linux.resources
    _pin(resources, cpus, mems)
    if lift:
        resources.cpu_quota = LIFTED_US
    request.config.annotations[ANNOTATION] = stamp.to_text()
    return request.SerializeToString()


def repin(request: api.UpdateContainerResourcesRequest, cpus: str, mems: str, quota: CfsQuota | None = None) -> bytes:
    """Return the kubelet's update with our cpuset in place of its own, and with *quota* if given."""
    _pin(request.linux, cpus, mems)
    _limit(request.linux, quota)
    return request.SerializeToString()


def update(cpus: str, mems: str, quota: CfsQuota | None = None) -> api.LinuxContainerResources:
    """Return an update with only the changes: empty fields stay unchanged, and hugepage limits would accumulate."""
    resources = api.LinuxContainerResources(cpuset_cpus=cpus, cpuset_mems=mems)
    _limit(resources, quota)
    return resources


def show_quota(status: api.ContainerStatus, asked: CfsQuota) -> None:
    """Write the requested quota *asked* into *status*, in place of the lifted one; the period is unchanged."""
    status.resources.linux.cpu_quota = asked.quota_us


def _pin(resources: api.LinuxContainerResources, cpus: str, mems: str) -> None:
    if cpus:
        resources.cpuset_cpus = cpus
    if mems:
        resources.cpuset_mems = mems


def _limit(resources: api.LinuxContainerResources, quota: CfsQuota | None) -> None:
    # Send both: runtimes differ in how they handle a missing period.
    if quota is not None:
        resources.cpu_quota, resources.cpu_period = quota.quota_us, quota.period_us
