"""The parts of a CreateContainerRequest about devices: reading them, and writing what the boundary made of them.

What is left of a list stays where and as it was, fields that we do not know included; new entries come last.
"""

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any, TypeVar

from criproxy.cri import api_pb2 as api
from criproxy.devices.device_request import DeviceNode, DeviceRequest, EnvVar, MountPoint, Requester
from criproxy.devices.evidence import Subject

CDI_ANNOTATIONS = "cdi.k8s.io/"
"""Before the rest of an annotation whose value lists CDI devices; of the container, so that a plugin wrote it."""

T = TypeVar("T")


def read(request: api.CreateContainerRequest) -> DeviceRequest:
    """What *request* says about devices."""
    config = request.config
    cdi = dict.fromkeys([*(device.name for device in config.CDI_devices), *_annotated(config.annotations)])
    return DeviceRequest(
        envs=tuple([EnvVar(env.key, env.value) for env in config.envs]),
        devices=tuple(map(_device, config.devices)),
        mounts=tuple(map(_mount, config.mounts)),
        cdi=tuple(cdi),
        annotations=dict(config.annotations),
    )


def listed(item: api.Container) -> DeviceRequest:
    """What is left of a create in a list of the runtime: annotations."""
    return DeviceRequest(cdi=tuple(dict.fromkeys(_annotated(item.annotations))), annotations=dict(item.annotations))


def subject(item: api.Container) -> Subject:
    """Whose container an entry of a list is, by the labels of the kubelet."""
    uid, namespace, pod = (item.labels.get(f"io.kubernetes.pod.{name}", "") for name in ("uid", "namespace", "name"))
    return Subject(
        sandbox_id=item.pod_sandbox_id, pod_uid=uid, namespace=namespace, pod=pod, container=item.metadata.name
    )


def subject_in(sandbox: api.PodSandboxConfig, sandbox_id: str, container: str = "") -> Subject:
    """The same of a container that is created in a sandbox; without *container*, of all in it."""
    names = sandbox.metadata
    return Subject(
        sandbox_id=sandbox_id, pod_uid=names.uid, namespace=names.namespace, pod=names.name, container=container
    )


def _annotated(annotations: Mapping[str, str]) -> Iterator[str]:
    """Names of CDI devices."""
    for key, value in annotations.items():
        if key.startswith(CDI_ANNOTATIONS):
            yield from filter(None, (name.strip() for name in value.split(",")))


def who(request: api.CreateContainerRequest, runtime: str = "") -> Requester:
    """The container of *request*; *runtime* is the runtime handler of its pod."""
    image, sandbox = request.config.image, request.sandbox_config
    return Requester(
        namespace=sandbox.metadata.namespace,
        images=tuple(dict.fromkeys(filter(None, (image.image, image.user_specified_image)))),
        privileged=request.config.linux.security_context.privileged,
        runtime=runtime,
    )


def who_is_listed(item: api.Container, *, privileged: bool = False) -> Requester:
    """The container of an entry of a list, as far as lists describe it."""
    images = dict.fromkeys(filter(None, (item.image.image, item.image.user_specified_image)))
    return Requester(
        namespace=item.labels.get("io.kubernetes.pod.namespace", ""), images=tuple(images), privileged=privileged
    )


def write(request: api.CreateContainerRequest, before: DeviceRequest, after: DeviceRequest) -> None:
    """Make *request* say what *after* does.

    Args:
        request: the create.
        before: what it says, as `read`.
        after: some of the entries of *before*, in their order, and after them new ones.
    """
    config = request.config
    for name, value in _write(config.envs, before.envs, after.envs):
        config.envs.add(key=name, value=value)
    for device in _write(config.devices, before.devices, after.devices):
        config.devices.add(
            container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
        )
    if _write(config.mounts, before.mounts, after.mounts):
        raise ValueError("a boundary adds no mounts")


def _write(field: MutableSequence[Any], entries: Sequence[T], wanted: Sequence[T]) -> Sequence[T]:
    """Delete those *entries* of a repeated field that are not wanted; returns what has to be added."""
    kept = 0
    gone: list[int] = []
    for index, entry in enumerate(entries):
        if kept < len(wanted) and entry == wanted[kept]:
            kept += 1
        else:
            gone.append(index)
    for index in reversed(gone):
        del field[index]
    return wanted[kept:]


def _device(message: api.Device) -> DeviceNode:
    return DeviceNode(message.container_path, message.host_path, message.permissions)


def _mount(message: api.Mount) -> MountPoint:
    return MountPoint(message.container_path, message.host_path)
