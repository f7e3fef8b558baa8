"""MPS: the settings of its control daemons, and the paths by which clients in containers find them.

The daemons limit memory and threads; a container gets the directory with the daemon's pipe, and the shared memory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import join

from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.deviceplugin.nvidia.resources import counted_gpus
from criproxy.devices.classes.offers import PART, Offered, Offers, is_replica
from criproxy.devices.mps_client import ROOT

MAX_CLIENTS = 48
"""Per GPU."""
MAX_CLIENTS_BEFORE = 16
"""Per GPU of an older architecture."""
_MORE_CLIENTS_SINCE = (7, 5)
"""The first compute capability that serves more clients."""
ON_MIG = "sharing using MPS is not supported for MIG devices"


class MpsError(ValueError):
    """A configuration with which MPS cannot work; the text is NVIDIA's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The control daemon of one resource."""

    resource: str
    pinned_memory_limits: Mapping[str, str] = field(default_factory=dict)
    """By the index of a card, for each client, for example ``3840M``; cards with unknown memory have no limit."""
    active_thread_percentage: str
    envs: Mapping[str, str]
    started_file: str
    """File that the daemon creates once it is ready."""


def daemons(offers: Offers, gpus: Sequence[Gpu], config: PluginConfig) -> tuple[Daemon, ...]:
    """Return the daemons that the file requires: one for each resource with shared cards.

    Raises:
        MpsError: A card is shared by more clients than it can serve.
    """
    if config.sharing.strategy != "mps":
        return ()
    memory, limits = _memory_mib(gpus), _max_clients(gpus)
    found = []
    for resource, offered in offers.items():
        if any(map(is_replica, offered)):
            _check_clients(offered.values(), limits)
            found.append(_daemon(resource, offered.values(), memory))
    return tuple(found)


def check(offered: Iterable[Offered], config: PluginConfig) -> None:
    """Refuse to serve a resource with MIG devices while MPS is configured, as NVIDIA's plugin does.

    Raises:
        MpsError: One of its cards is a MIG device.
    """
    if config.sharing.strategy == "mps" and any(map(is_mig, offered)):
        raise MpsError(ON_MIG)


def is_mig(offered: Offered) -> bool:
    """Whether *offered* is a MIG device, or a replica of one."""
    return PART in offered.index


def pipe_directory(root: str, resource: str) -> str:
    """Return the directory below *root* where clients of *resource* find its daemon."""
    return join(root, resource, "pipe")


def _daemon(resource: str, offered: Iterable[Offered], memory_mib: Mapping[str, int]) -> Daemon:
    clients = Counter((each.card, each.index) for each in offered)
    of_a_card = clients.total() // len(clients)
    known = [(index, memory_mib[card] // count) for (card, index), count in clients.items() if memory_mib.get(card)]
    return Daemon(
        resource=resource,
        pinned_memory_limits={index: f"{size}M" for index, size in known},
        active_thread_percentage=str(100 // of_a_card),
        envs={
            "CUDA_MPS_PIPE_DIRECTORY": pipe_directory(ROOT, resource),
            "CUDA_MPS_LOG_DIRECTORY": join(ROOT, resource, "log"),
        },
        started_file=join(ROOT, resource, ".started"),
    )


def overloaded(offers: Offers, gpus: Iterable[Gpu], config: PluginConfig) -> dict[str, str]:
    """Return the cards that are shared by more clients than they can serve: ID to NVIDIA's message.

    With such a card, NVIDIA's control daemon does not start, and its plugin waits for it. A GPU whose architecture
    is unknown, because NVML did not describe it, is accepted.
    """
    if config.sharing.strategy != "mps":
        return {}
    limits = _max_clients(gpu for gpu in gpus if gpu.compute_capability > (0, 0))
    found = {}
    for offered in offers.values():
        for each in offered.values():
            if each.card in limits and (text := _too_many(each, limits[each.card])):
                found[each.card] = text
    return found


def _check_clients(offered: Iterable[Offered], limits: Mapping[str, int]) -> None:
    for each in offered:
        if text := _too_many(each, limits.get(each.card, MAX_CLIENTS_BEFORE)):
            raise MpsError(text)


def _too_many(offered: Offered, most: int) -> str:
    if is_mig(offered) or offered.replicas <= most:
        return ""
    text = f"invalid device maximum allowed replicas exceeded: {offered.replicas} > {most}"
    return f"invalid MPS configuration: {text}"


def _memory_mib(gpus: Iterable[Gpu]) -> dict[str, int]:
    """Return the memory by the ID of a card; under WSL, where all GPUs are one card, that of the last one."""
    found: dict[str, int] = {}
    for gpu in counted_gpus(gpus):
        found |= {gpu.uuid: gpu.memory_mib, "all": gpu.memory_mib}
        found |= {device.uuid: device.memory_mib for device in gpu.mig}
    return found


def _max_clients(gpus: Iterable[Gpu]) -> dict[str, int]:
    found: dict[str, int] = {}
    for gpu in counted_gpus(gpus):
        most = MAX_CLIENTS if gpu.compute_capability >= _MORE_CLIENTS_SINCE else MAX_CLIENTS_BEFORE
        found |= {gpu.uuid: most, "all": most}
    return found
