"""Grant → message: writes only the fields that criproxy owns.

Those are ``cpuset_cpus`` and ``cpuset_mems`` of the container's resources, ``cpu_quota`` and ``cpu_period`` where the
quota is lifted or was, and the annotation of `cri.stamp`.
Messages are edited in place after parsing: everything else, fields that we do not know included, leaves as it came.
"""

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import ANNOTATION, Stamp
from criproxy.model.resources import LIFTED_US, CfsQuota


def place(request: api.CreateContainerRequest, cpus: str, mems: str, stamp: Stamp, *, lift: bool = False) -> bytes:
    """Put the container of *request* on *cpus* and *mems* (kernel list format) and stamp it.

    An empty string leaves that field as the kubelet set it; with *lift* it gets no CFS quota.
    """
    resources = request.config.linux.resources
    _pin(resources, cpus, mems)
    if lift:
        resources.cpu_quota = LIFTED_US
    request.config.annotations[ANNOTATION] = stamp.to_text()
    return request.SerializeToString()


def repin(request: api.UpdateContainerResourcesRequest, cpus: str, mems: str, quota: CfsQuota | None = None) -> bytes:
    """The kubelet's update with our cpuset in it, whatever cpuset it carried, and with *quota* if that is said."""
    _pin(request.linux, cpus, mems)
    _limit(request.linux, quota)
    return request.SerializeToString()


def update(cpus: str, mems: str, quota: CfsQuota | None = None) -> api.LinuxContainerResources:
    """An update of our own: only what changes. What is empty stays as it is, and hugepage limits would pile up."""
    resources = api.LinuxContainerResources(cpuset_cpus=cpus, cpuset_mems=mems)
    _limit(resources, quota)
    return resources


def tell_quota(status: api.ContainerStatus, asked: CfsQuota) -> None:
    """Say in *status* the quota that was *asked*, in place of the lifted one; the period never changed."""
    status.resources.linux.cpu_quota = asked.quota_us


def _pin(resources: api.LinuxContainerResources, cpus: str, mems: str) -> None:
    if cpus:
        resources.cpuset_cpus = cpus
    if mems:
        resources.cpuset_mems = mems


def _limit(resources: api.LinuxContainerResources, quota: CfsQuota | None) -> None:
    # Both: runtimes differ in what becomes of a period that is not sent along.
    if quota is not None:
        resources.cpu_quota, resources.cpu_period = quota.quota_us, quota.period_us
