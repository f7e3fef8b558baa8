"""What a container gets with NVIDIA's cards, for each strategy of the file.

With MPS, it gets the directory with the pipe of NVIDIA's control daemon, and the shared memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import join, normpath

from criproxy.deviceplugin.nvidia.gpus import IMEX_CHANNELS, SHARED_NODES, Gpu, Platform
from criproxy.deviceplugin.nvidia.options import Flags, PluginConfig
from criproxy.deviceplugin.nvidia.resources import counted_gpus
from criproxy.devices.classes.offers import Offered, Offers, unique
from criproxy.devices.evidence.device_request import DeviceNode, Mount, Response, chosen
from criproxy.devices.mps_client import PIPE_DIRECTORY, client_mounts

MAX_CLIENTS = 48
"""Per GPU."""
MAX_CLIENTS_BEFORE = 16
"""Per GPU of an older architecture."""
_MORE_CLIENTS_SINCE = (7, 5)
"""The first compute capability that serves more clients."""
ON_MIG = "sharing using MPS is not supported for MIG devices"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTED_DEVICES = "/var/run/nvidia-container-devices"
"""Directory in which the name of a mount is the ID of a card."""
CDI_VENDOR = "k8s.device-plugin.nvidia.com"
_CDI_STRATEGIES = frozenset({"cdi-annotations", "cdi-cri"})
_ANNOTATION = "nvidia-device-plugin_"


class MpsError(ValueError):
    """A configuration with which MPS cannot work; the text is NVIDIA's."""


def overloaded(offers: Offers, gpus: Iterable[Gpu], config: PluginConfig) -> dict[str, str]:
    """Return the cards that are shared by more clients than they can serve: ID to NVIDIA's message.

    With such a card, NVIDIA's control daemon does not start, and its plugin waits for it. A GPU whose architecture
    is unknown, because NVML did not describe it, is accepted.
    """
    if config.sharing.strategy != "mps":
        return {}
    most: dict[str, int] = {}
    for gpu in counted_gpus(gpus):
        if gpu.compute_capability > (0, 0):
            clients = MAX_CLIENTS if gpu.compute_capability >= _MORE_CLIENTS_SINCE else MAX_CLIENTS_BEFORE
            most |= {gpu.uuid: clients, "all": clients}  # under WSL, all GPUs are one card
    text = "invalid MPS configuration: invalid device maximum allowed replicas exceeded"
    return {
        each.card: f"{text}: {each.replicas} > {most[each.card]}"
        for offered in offers.values()
        for each in offered.values()
        if not each.is_part and each.replicas > most.get(each.card, each.replicas)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """Answers the kubelet's Allocate for one resource."""

    resource: str
    offered: Mapping[str, Offered]
    config: PluginConfig
    only_one: bool = False
    """Whether a container can get at most one replica."""
    platform: Platform = "nvml"
    nodes: tuple[str, ...] = ()
    """NVIDIA's shared device nodes that exist."""
    imex_channels: tuple[str, ...] = ()
    """Numbers of the channels to the memory of other nodes that containers get."""
    new_uuid: Callable[[], object]
    """Makes the keys of CDI annotations unique."""

    def __post_init__(self) -> None:
        """Check the cards; raise MpsError, as NVIDIA's plugin does, for a MIG device while MPS is configured."""
        if self.config.sharing.strategy == "mps" and any(each.is_part for each in self.offered.values()):
            raise MpsError(ON_MIG)

    def allocate(self, ids: Sequence[str]) -> Response:
        """Return what a container gets for its IDs.

        Raises:
            InvalidRequest: The request cannot be served. The text is NVIDIA's.
        """
        cards = chosen(self.resource, self.offered, ids, only_one=self.only_one)
        flags, strategies = self.config.flags, frozenset(self.config.flags.plugin.device_list_strategy)
        by_index = flags.plugin.device_id_strategy == "index"
        words = unique(each.index if by_index else each.card for each in cards)
        names = self._cdi_names(words)
        # As in NVIDIA's plugin, MPS counts also if the resource itself is not shared.
        mps = client_mounts(_clean(flags.mps_root), self.resource) if self.config.sharing.strategy == "mps" else ()
        mps_envs = {PIPE_DIRECTORY: mps[0].container_path} if mps else {}
        extra_envs = {f"NVIDIA_{name.upper()}": "enabled" for name in _enabled(flags)}
        plain = not strategies <= _CDI_STRATEGIES  # also false if the file names no strategy
        return Response(
            envs=mps_envs | extra_envs | self._visible(words, strategies),
            mounts=(*mps, *self._id_mounts(cards, strategies)),
            devices=self._nodes(cards) if plain and flags.plugin.pass_device_specs else (),
            annotations=self._annotations(names) if "cdi-annotations" in strategies else {},
            cdi_devices=names if "cdi-cri" in strategies else (),
        )

    def _visible(self, words: Sequence[str], strategies: frozenset[str]) -> dict[str, str]:
        """Return the variables that NVIDIA's hook reads; for mounted cards, one is the directory of the mounts."""
        envs = {}
        if "envvar" in strategies:
            envs[VISIBLE] = ",".join(words)
            if self.imex_channels:
                envs["NVIDIA_IMEX_CHANNELS"] = ",".join(self.imex_channels)
        if "volume-mounts" in strategies:
            envs[VISIBLE] = MOUNTED_DEVICES
        return envs

    def _id_mounts(self, cards: Sequence[Offered], strategies: frozenset[str]) -> tuple[Mount, ...]:
        """Return a mount for each card. A MIG device has its UUID: the proxy cannot tell whose an index ``0:1`` is."""
        if "volume-mounts" not in strategies:
            return ()
        by_index = self.config.flags.plugin.device_id_strategy == "index"
        words = unique(each.index if by_index and not each.is_part else each.card for each in cards)
        names = *words, *(join("imex", channel) for channel in self.imex_channels)
        return tuple(Mount(join(MOUNTED_DEVICES, name), "/dev/null") for name in names)

    def _nodes(self, cards: Sequence[Offered]) -> tuple[DeviceNode, ...]:
        """Return the nodes; one that cards have in common, such as the GPU of several MIG devices, is repeated."""
        paths = [path for path in SHARED_NODES if path in self.nodes and self.platform == "nvml"]
        paths += [path for each in cards for path in each.paths]
        paths += [join(IMEX_CHANNELS, f"channel{channel}") for channel in self.imex_channels]
        root = self.config.flags.nvidia_dev_root
        return tuple(DeviceNode(path, _clean(f"{root}/{path}"), "rw") for path in paths)

    def _cdi_names(self, words: Sequence[str]) -> tuple[str, ...]:
        return (
            *(f"{CDI_VENDOR}/gpu={word}" for word in words),
            *(f"{CDI_VENDOR}/imex-channel={channel}" for channel in self.imex_channels),
            *(f"{CDI_VENDOR}/{name}=all" for name in _enabled(self.config.flags)),
        )

    def _annotations(self, names: Sequence[str]) -> dict[str, str]:
        prefix = self.config.flags.plugin.cdi_annotation_prefix
        return {f"{prefix}{_ANNOTATION}{self.new_uuid()}": ",".join(names)} if names else {}


def _enabled(flags: Flags) -> list[str]:
    """Return what containers get in addition to cards."""
    enabled = {"gdrcopy": flags.gdrcopy_enabled, "gds": flags.gds_enabled, "mofed": flags.mofed_enabled}
    return [name for name, value in enabled.items() if value]


def _clean(path: str) -> str:
    """Normalise *path*; ``normpath`` alone keeps two slashes at the beginning."""
    return normpath(path).replace("//", "/", 1)
