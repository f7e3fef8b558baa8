"""Reads the parts of a CreateContainerRequest about devices, and writes the result of the device rules.

Remaining entries of a list stay unchanged, including unknown fields; new entries are appended.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceNode, DeviceRequest, EnvVar, MountPoint, Requester
from criproxy.devices.evidence.evidence import Subject
from criproxy.devices.plugin.enforcement import managed_env_prefixes

CDI_ANNOTATIONS = "cdi.k8s.io/"
"""The prefix of annotations whose values list CDI devices; in a container, they come from a device plugin."""
AT_ONCE = 10_000
"""After so many variables, other calls get their turn."""
T = TypeVar("T")
_SEES_OWN = "the container sees only the cards of the CDI devices and device nodes in its create"
_SEES_ASKED = "the container sees what it asks for, as hideUnallocated or userOverride in the policy file allows"


@dataclass(frozen=True, slots=True)
class DeviceEntries:
    """The entries about devices of one create."""

    request: api.CreateContainerRequest
    asked: DeviceRequest
    """What they say."""
    _env_numbers: Sequence[int]
    """The places of its variables among all variables of the message."""

    def write(self, after: DeviceRequest) -> None:
        """Write *after* into the message: some of the entries, in their order, followed by new ones."""
        config, before = self.request.config, self.asked
        for name, value in _write(config.envs, before.envs, after.envs, self._env_numbers):
            config.envs.add(key=name, value=value)
        for device in _write(config.devices, before.devices, after.devices):
            config.devices.add(
                container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
            )
        if _write(config.mounts, before.mounts, after.mounts):
            raise ValueError("a boundary adds no mounts")


async def managed_variables(request: api.CreateContainerRequest, classes: Iterable[DeviceClass]) -> list[int]:
    """Return the places of the variables of *request* that the rules of *classes* and of quotas manage.

    A tenant can write a million other variables; they are not copied, and other calls continue in between.
    """
    prefixes, envs = managed_env_prefixes(classes, dict(request.config.annotations)), request.config.envs
    found: list[int] = []
    for start in range(0, len(envs), AT_ONCE):
        if start:
            await asyncio.sleep(0)
        part = enumerate(envs[start : start + AT_ONCE], start)
        found += [number for number, env in part if env.key.startswith(prefixes)]
    return found


def read(request: api.CreateContainerRequest, variables: Sequence[int]) -> DeviceEntries:
    """Read the parts of *request* about devices; of the variables, those at the places *variables*."""
    config = request.config
    envs = (config.envs[number] for number in variables)
    cdi = dict.fromkeys([*(device.name for device in config.CDI_devices), *_annotated(config.annotations)])
    asked = DeviceRequest(
        envs=tuple([EnvVar(env.key, env.value) for env in envs]),
        devices=tuple(DeviceNode(each.container_path, each.host_path, each.permissions) for each in config.devices),
        mounts=tuple(MountPoint(each.container_path, each.host_path) for each in config.mounts),
        cdi=tuple(cdi),
        annotations=dict(config.annotations),
    )
    return DeviceEntries(request, asked, variables)


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
    return Requester(
        namespace=request.sandbox_config.metadata.namespace,
        images=_names(request.config.image),
        privileged=request.config.linux.security_context.privileged,
        runtime=runtime,
    )


def listed_identity(item: api.Container, *, privileged: bool = False) -> Requester:
    """Return the identity of a listed container, as far as lists contain it."""
    namespace = item.labels.get("io.kubernetes.pod.namespace", "")
    return Requester(namespace=namespace, images=_names(item.image), privileged=privileged)


def _names(image: api.ImageSpec) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (image.image, image.user_specified_image))))


def _write(
    field: MutableSequence[Any], entries: Sequence[T], wanted: Sequence[T], numbers: Sequence[int] | None = None
) -> Sequence[T]:
    """Delete the *entries* of a repeated field that are not *wanted*, and return those that have to be added.

    *numbers* are the places of the entries in the field, if it has others as well.
    """
    kept = 0
    gone: list[int] = []
    for index, entry in enumerate(entries):
        if kept < len(wanted) and entry == wanted[kept]:
            kept += 1
        else:
            gone.append(index if numbers is None else numbers[index])
    for index in reversed(gone):
        del field[index]
    return wanted[kept:]


def hide_all(request: api.CreateContainerRequest, rules: DeviceRules, runtime: str = "") -> None:
    """Hide all cards that *rules* allow to hide from the container of *request*.

    Args:
        request: the create; changed in place.
        rules: with ``hideUnallocated`` other than ``enforce`` nothing is hidden, and with ``userOverride`` other than
            ``strip`` what the pod asks for stays.
        runtime: the runtime handler of its pod, as far as it is known.
    """
    if rules.hide_unallocated == "enforce":
        for kind in rules.classes:
            _hide(request.config, kind, runtime, strip=rules.user_override == "strip")


def left_to_see(rules: DeviceRules) -> str:
    """Return in a sentence what `hide_all` leaves to a container."""
    return _SEES_OWN if rules.hide_unallocated == "enforce" and rules.user_override == "strip" else _SEES_ASKED


def _hide(config: api.ContainerConfig, kind: DeviceClass, runtime: str, *, strip: bool) -> None:
    managed = [n for n, env in enumerate(config.envs) if env.key == kind.visible_env or kind.strips(env.key)]
    asking = [n for n, mount in enumerate(config.mounts) if kind.asked_by_mount(mount.container_path) is not None]
    if (managed or asking) and not strip:
        return
    _delete(config.envs, managed)
    _delete(config.mounts, asking)
    if (value := kind.hiding(runtime)) is not None:
        config.envs.add(key=kind.visible_env, value=value)


def _delete(field: MutableSequence[Any], numbers: Collection[int]) -> None:
    """Write the list anew: each entry that is deleted would move all behind it."""
    if gone := set(numbers):
        kept = [each for number, each in enumerate(field) if number not in gone]
        del field[:]
        field.extend(kept)
