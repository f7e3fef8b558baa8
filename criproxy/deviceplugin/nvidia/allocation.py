"""What a container gets with NVIDIA's cards, for each strategy of the file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import join, normpath

from criproxy.deviceplugin.nvidia import mps
from criproxy.deviceplugin.nvidia.nodes import IMEX_CHANNELS, SHARED_NODES, Platform
from criproxy.deviceplugin.nvidia.options import Flags, PluginConfig
from criproxy.devices.classes.offers import Offered, is_replica, unique
from criproxy.devices.evidence.allocation import InvalidRequest, Mount, Response
from criproxy.devices.evidence.device_request import DeviceNode
from criproxy.devices.mps_client import ROOT, SHARED_MEMORY, shared_memory_directory

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTED_DEVICES = "/var/run/nvidia-container-devices"
"""Directory in which the name of a mount is the ID of a card."""
CDI_VENDOR = "k8s.device-plugin.nvidia.com"
_CDI_STRATEGIES = frozenset({"cdi-annotations", "cdi-cri"})
_ANNOTATION = "nvidia-device-plugin_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the machine has in addition to cards."""

    platform: Platform = "nvml"
    nodes: tuple[str, ...] = ()
    """NVIDIA's shared device nodes that exist."""
    imex_channels: tuple[str, ...] = ()
    """Numbers of the channels to the memory of other nodes that containers get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """Answers the kubelet's Allocate for one resource."""

    resource: str
    offered: Mapping[str, Offered]
    config: PluginConfig
    host: Host = Host()
    new_uuid: Callable[[], str]
    """Makes the keys of CDI annotations unique."""

    def __post_init__(self) -> None:
        mps.check(self.offered.values(), self.config)

    def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Response, ...]:
        """Return what each container gets for its IDs.

        Raises:
            InvalidRequest: One of the requests cannot be served; then none is. The text is NVIDIA's.
        """
        return tuple(map(self._response, requests))

    def _response(self, ids: Sequence[str]) -> Response:
        self._check(ids)
        flags, strategies = self.config.flags, frozenset(self.config.flags.plugin.device_list_strategy)
        chosen = [self.offered[each] for each in unique(ids)]
        by_index = flags.plugin.device_id_strategy == "index"
        words = unique(each.index if by_index else each.card for each in chosen)
        names = self._cdi_names(words)
        plain = not strategies <= _CDI_STRATEGIES  # also false if the file names no strategy
        return Response(
            envs=self._mps_envs() | _extra_envs(flags) | self._visible(words, strategies),
            mounts=self._mps_mounts() + self._id_mounts(chosen, strategies),
            devices=self._nodes(chosen) if plain and flags.plugin.pass_device_specs else (),
            annotations=self._annotations(names) if "cdi-annotations" in strategies else {},
            cdi_devices=names if "cdi-cri" in strategies else (),
        )

    def _check(self, ids: Sequence[str]) -> None:
        if (unknown := next((each for each in ids if each not in self.offered), None)) is not None:
            raise self._invalid(f"unknown device: {unknown}")
        if len(ids) > 1 and self._only_one and any(map(is_replica, ids)):
            raise self._invalid(f"maximum request size for shared resources is 1; found {len(ids)}")

    @property
    def _only_one(self) -> bool:
        """Whether a container can get at most one replica."""
        shared = self.config.sharing.shared
        return shared is not None and shared.fail_requests_greater_than_one

    def _invalid(self, text: str) -> InvalidRequest:
        return InvalidRequest(f'invalid allocation request for "{self.resource}": invalid request: {text}')

    @property
    def _mps(self) -> bool:
        return self.config.sharing.strategy == "mps"

    def _mps_envs(self) -> dict[str, str]:
        """Return the variables of MPS; as in NVIDIA's plugin, also if the resource itself is not shared."""
        return {"CUDA_MPS_PIPE_DIRECTORY": mps.pipe_directory(ROOT, self.resource)} if self._mps else {}

    def _mps_mounts(self) -> tuple[Mount, ...]:
        if not self._mps:
            return ()
        root = _clean(self.config.flags.mps_root)
        return (
            Mount(mps.pipe_directory(ROOT, self.resource), mps.pipe_directory(root, self.resource)),
            Mount(SHARED_MEMORY, shared_memory_directory(root)),
        )

    def _visible(self, words: Sequence[str], strategies: frozenset[str]) -> dict[str, str]:
        """Return the variables that NVIDIA's hook reads; for mounted cards, one is the directory of the mounts."""
        envs = {}
        if "envvar" in strategies:
            envs[VISIBLE] = ",".join(words)
            if self.host.imex_channels:
                envs["NVIDIA_IMEX_CHANNELS"] = ",".join(self.host.imex_channels)
        if "volume-mounts" in strategies:
            envs[VISIBLE] = MOUNTED_DEVICES
        return envs

    def _id_mounts(self, chosen: Sequence[Offered], strategies: frozenset[str]) -> tuple[Mount, ...]:
        """Return a mount for each card. A MIG device has its UUID: the proxy cannot tell whose an index ``0:1`` is."""
        if "volume-mounts" not in strategies:
            return ()
        by_index = self.config.flags.plugin.device_id_strategy == "index"
        words = unique(each.index if by_index and not mps.is_mig(each) else each.card for each in chosen)
        names = *words, *(join("imex", channel) for channel in self.host.imex_channels)
        return tuple(Mount(join(MOUNTED_DEVICES, name), "/dev/null") for name in names)

    def _nodes(self, chosen: Sequence[Offered]) -> tuple[DeviceNode, ...]:
        """Return the nodes; one that cards have in common, such as the GPU of several MIG devices, is repeated."""
        paths = [path for path in SHARED_NODES if path in self.host.nodes and self.host.platform == "nvml"]
        paths += [path for each in chosen for path in each.paths]
        paths += [join(IMEX_CHANNELS, f"channel{channel}") for channel in self.host.imex_channels]
        root = self.config.flags.nvidia_dev_root
        return tuple(DeviceNode(path, _clean(f"{root}/{path}"), "rw") for path in paths)

    def _cdi_names(self, words: Sequence[str]) -> tuple[str, ...]:
        flags = self.config.flags
        beside = {"gdrcopy": flags.gdrcopy_enabled, "gds": flags.gds_enabled, "mofed": flags.mofed_enabled}
        return (
            *(f"{CDI_VENDOR}/gpu={word}" for word in words),
            *(f"{CDI_VENDOR}/imex-channel={channel}" for channel in self.host.imex_channels),
            *(f"{CDI_VENDOR}/{name}=all" for name, enabled in beside.items() if enabled),
        )

    def _annotations(self, names: Sequence[str]) -> dict[str, str]:
        prefix = self.config.flags.plugin.cdi_annotation_prefix
        return {f"{prefix}{_ANNOTATION}{self.new_uuid()}": ",".join(names)} if names else {}


def _extra_envs(flags: Flags) -> dict[str, str]:
    enabled = {
        "NVIDIA_GDRCOPY": flags.gdrcopy_enabled,
        "NVIDIA_GDS": flags.gds_enabled,
        "NVIDIA_MOFED": flags.mofed_enabled,
    }
    return {name: "enabled" for name, value in enabled.items() if value}


def _clean(path: str) -> str:
    """Normalise *path*; ``normpath`` alone keeps two slashes at the beginning."""
    return normpath(path).replace("//", "/", 1)
