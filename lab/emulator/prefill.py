"""Containers that run from the start, as a kubelet would have made them."""

import hashlib
import itertools
from collections.abc import Iterator

from lab.emulator.core import Core
from lab.emulator.records.records import Container, Sandbox, as_created, container_name
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config

CONTAINERS_PER_POD = 4
_CPU_MILLI = 100
_MEMORY_BYTES = 8 << 30


def prefill(core: Core, image: str, count: int) -> None:
    """Add *count* running containers of the stored *image*, four to a pod; their ids are the same every time."""
    image_id = core.images.required(image)
    cpuset = core.machine.cpuset("", "")
    for pod, sandbox, number in itertools.islice(_places(core, image), count):
        config = container_config(pod, pod.containers[number], _MEMORY_BYTES)
        name = container_name(config.metadata, sandbox.config.metadata)
        resources = as_created(config.linux.resources)
        container = Container(_digest(name), sandbox, name, config, image_id, resources, cpuset=cpuset)
        core.records.reserve(name, container.id)
        core.records.containers[container.id] = container
        core.run_container(container, container.created_ns)


def _places(core: Core, image: str) -> Iterator[tuple[PodSpec, Sandbox, int]]:
    ports = {"io.kubernetes.container.ports": '[{"name":"http","containerPort":8080,"protocol":"TCP"}]'}
    for number in itertools.count():
        names = (f"container-{number}-{at}" for at in range(CONTAINERS_PER_POD))
        specs = tuple(ContainerSpec(name, image, (), _CPU_MILLI, annotations=ports) for name in names)
        pod = PodSpec(f"prefilled-{number}", specs)
        sandbox = Sandbox(_digest(pod.name), sandbox_config(pod))
        core.records.reserve(sandbox.name, sandbox.id)
        core.records.sandboxes[sandbox.id] = sandbox
        yield from ((pod, sandbox, at) for at in range(CONTAINERS_PER_POD))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
