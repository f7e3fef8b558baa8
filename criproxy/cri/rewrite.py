"""Grant → message: writes only the fields that criproxy owns.

Those are ``cpuset_cpus`` and ``cpuset_mems`` of the container's resources and the annotation of `cri.stamp`.
Messages are edited in place after parsing: everything else, fields that we do not know included, leaves as it came.
"""

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import ANNOTATION, Stamp


def place(request: api.CreateContainerRequest, cpus: str, mems: str, stamp: Stamp) -> bytes:
    """Put the container of *request* on *cpus* and *mems* (kernel list format) and stamp it.

    An empty string leaves that field as the kubelet set it.
    """
    _pin(request.config.linux.resources, cpus, mems)
    request.config.annotations[ANNOTATION] = stamp.to_text()
    return request.SerializeToString()


def repin(request: api.UpdateContainerResourcesRequest, cpus: str, mems: str) -> bytes:
    """The kubelet's update with our cpuset in it, whatever cpuset it carried."""
    _pin(request.linux, cpus, mems)
    return request.SerializeToString()


def cpuset_only(cpus: str, mems: str) -> api.LinuxContainerResources:
    """An update of our own. Nothing but the cpuset: what is empty stays as it is, and hugepage limits would pile up."""
    return api.LinuxContainerResources(cpuset_cpus=cpus, cpuset_mems=mems)


def _pin(resources: api.LinuxContainerResources, cpus: str, mems: str) -> None:
    if cpus:
        resources.cpuset_cpus = cpus
    if mems:
        resources.cpuset_mems = mems
