"""Reads the parts of a CreateContainerRequest about devices, and writes the result of the device rules.

Remaining entries of a list stay unchanged, including unknown fields; new entries are appended.
"""

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any, TypeVar

from criproxy.cri import api_pb2 as api
from criproxy.devices.device_request import DeviceNode, DeviceRequest, EnvVar, MountPoint, Requester
from criproxy.devices.evidence import Subject

CDI_ANNOTATIONS = "cdi.k8s.io/"
"""The prefix of annotations whose values list CDI devices; in a container, they come from a device plugin."""

T = TypeVar("T")


def read(request: api.CreateContainerRequest) -> DeviceRequest:
    """Read the parts of *request* about devices."""
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
    """Read the annotations of a listed container: the only part of its create that lists contain."""
    return DeviceRequest(cdi=tuple(dict.fromkeys(_annotated(item.annotations))), annotations=dict(item.annotations))


def subject(item: api.Container) -> Subject:
    """Return the pod and the name of a listed container, from the kubelet's labels."""
    uid, namespace, pod = (item.labels.get(f"io.kubernetes.pod.{name}", "") for name in ("uid", "namespace", "name"))
    return Subject(
        sandbox_id=item.pod_sandbox_id, pod_uid=uid, namespace=namespace, pod=pod, container=item.metadata.name
    )


def subject_in(sandbox: api.PodSandboxConfig, sandbox_id: str, container: str = "") -> Subject:
    """Return the same for a container that is created in a sandbox; without *container*, for all in it."""
    names = sandbox.metadata
    return Subject(
        sandbox_id=sandbox_id, pod_uid=names.uid, namespace=names.namespace, pod=names.name, container=container
    )


def _annotated(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of CDI devices."""
    for key, value in annotations.items():
        if key.startswith(CDI_ANNOTATIONS):
            yield from filter(None, (name.strip() for name in value.split(",")))


def identity(request: api.CreateContainerRequest, runtime: str = "") -> Requester:
    """Return the identity of the container of *request*; *runtime* is the runtime handler of its pod."""
    image, sandbox = request.config.image, request.sandbox_config
    return Requester(
        namespace=sandbox.metadata.namespace,
        images=tuple(dict.fromkeys(filter(None, (image.image, image.user_specified_image)))),
        privileged=request.config.linux.security_context.privileged,
        runtime=runtime,
    )


def listed_identity(item: api.Container, *, privileged: bool = False) -> Requester:
    """Return the identity of a listed container, as far as lists contain it."""
    images = dict.fromkeys(filter(None, (item.image.image, item.image.user_specified_image)))
    return Requester(
        namespace=item.labels.get("io.kubernetes.pod.namespace", ""), images=tuple(images), privileged=privileged
    )


def write(request: api.CreateContainerRequest, before: DeviceRequest, after: DeviceRequest) -> None:
    """Write *after* into *request*.

    Args:
        request: the create.
        before: the result of `read`.
        after: some of the entries of *before*, in their order, followed by new ones.
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
    """Delete the *entries* of a repeated field that are not *wanted*, and return those that have to be added."""
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
