"""What NVIDIA's library NVML reports: the links between GPUs and their MIG devices, and whether a GPU works.

NVML opens device nodes, may take seconds, and hangs if its driver does. Therefore, commands query it in a separate
thread (`ask_nvml`), and the device plugin in separate programs, which use the functions that get pynvml. The daemon
does not query it: it may not even open those nodes (``DevicePolicy=closed``).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from criproxy.devices.classes.cards import Distance, NvLinks, Peers
from criproxy.errors import CriproxyError
from criproxy.host.patience import Hangs, Patience

TIMEOUT_S = 5.0
"""An unused GPU is initialised first, which takes seconds without the persistence daemon."""
INITIALISED_S = 600.0
"""How long a program may take that waits until all GPUs are initialised, one after the other."""
_RESET = "the driver asks for a reset of the GPU"
_REBOOT = "the driver asks for a reboot because of the GPU"
_RECOVERIES = {1: _RESET, 2: _REBOOT, 4: _RESET, 6: _RESET, 7: _REBOOT}
"""NVML's recovery actions; 3 and 5 are about links to other GPUs."""


class NoNvml(CriproxyError):
    """NVML cannot be queried; the text is the reason."""


def ask_nvml(timeout_s: float = TIMEOUT_S) -> Mapping[str, Peers]:
    """Query NVML for the links of the machine's GPUs, by UUID.

    Raises:
        NoNvml: NVML is not installed, finds no driver, or has not answered after *timeout_s*.
    """
    try:
        return Patience().ask("NVML", _read, timeout_s)
    except Hangs as error:
        raise NoNvml(str(error)) from None
    except ImportError:
        text = "the Python package nvidia-ml-py, which criproxy needs to query NVML, is not installed"
        raise NoNvml(text) from None
    except Exception as error:  # a third-party library, on a driver in any state
        raise NoNvml(f"NVML: {error}") from error


def _read() -> Mapping[str, Peers]:
    import pynvml

    pynvml.nvmlInit()
    try:
        cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return peers_of(pynvml, {text_of(pynvml.nvmlDeviceGetUUID(card)): card for card in cards})
    finally:
        pynvml.nvmlShutdown()


def peers_of(nvml: ModuleType, cards: Mapping[str, Any]) -> Mapping[str, Peers]:
    """Return what NVML reports about the links of *cards*; the argument has a handle for each UUID."""
    return {
        own: Peers(
            distances=dict(_distances(nvml, card, {other: cards[other] for other in cards if other != own})),
            nvlinks=_nvlinks(nvml, card),
            parts=tuple(_parts(nvml, card)),
        )
        for own, card in cards.items()
    }


def _distances(nvml: ModuleType, card: Any, others: Mapping[str, Any]) -> Iterator[tuple[str, Distance]]:  # noqa: ANN401
    """Yield the distances to *others* that NVML reports, by ID."""
    words = {
        nvml.NVML_TOPOLOGY_INTERNAL: Distance.PIX,
        nvml.NVML_TOPOLOGY_SINGLE: Distance.PIX,
        nvml.NVML_TOPOLOGY_MULTIPLE: Distance.PXB,
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: Distance.PHB,
        nvml.NVML_TOPOLOGY_NODE: Distance.NODE,
        nvml.NVML_TOPOLOGY_SYSTEM: Distance.SYS,
    }
    for other_id, other in others.items():
        try:
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(card, other)
        except nvml.NVMLError:  # not on this driver, or not in this guest
            continue
        if level in words:
            yield other_id, words[level]


def _nvlinks(nvml: ModuleType, card: Any) -> NvLinks:  # noqa: ANN401
    to_cards: Counter[str] = Counter()
    to_switches = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(card, link):
                continue
            if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(card, link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                to_switches += 1
            else:
                to_cards[address_of(text_of(nvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId))] += 1
        except nvml.NVMLError:  # a card without NVLinks, or with fewer
            continue
    return NvLinks(dict(to_cards), to_switches)


def _parts(nvml: ModuleType, card: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the UUIDs of the MIG devices of a card; their indexes have gaps."""
    try:
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(card)
    except nvml.NVMLError:
        return
    for index in range(most):
        try:
            yield text_of(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)))
        except nvml.NVMLError:
            continue


def fault_of(nvml: ModuleType, card: Any) -> str:  # noqa: ANN401
    """Return why a GPU does not work, as the driver says it; empty if it works, or if the driver does not know.

    Its memory is queried because NVML answers other questions from what it has read before.

    Raises:
        NVMLError: The driver has not answered about this GPU; that says nothing about the GPU.
    """
    try:
        nvml.nvmlDeviceGetMemoryInfo(card)
    except nvml.NVMLError as error:
        if is_lost(nvml, error):
            return str(error)
        if not is_unsupported(nvml, error) and error.value != nvml.NVML_ERROR_NO_PERMISSION:
            raise
    return _RECOVERIES.get(_recovery_action(nvml, card), "")


def is_lost(nvml: ModuleType, error: Any) -> bool:  # noqa: ANN401
    """Whether an error of NVML about a GPU means that the GPU does not work."""
    return error.value in {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED}


def is_unsupported(nvml: ModuleType, error: Any) -> bool:  # noqa: ANN401
    """Whether an error of NVML means that the card or the driver does not support the call."""
    return error.value in {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND}


def _recovery_action(nvml: ModuleType, card: Any) -> int:  # noqa: ANN401
    """Return what the driver wants to be done about a GPU; 0: nothing, or the driver is too old to say it."""
    try:
        (field,) = nvml.nvmlDeviceGetFieldValues(card, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    except nvml.NVMLError:
        return 0
    return int(field.value.uiVal) if field.nvmlReturn == nvml.NVML_SUCCESS else 0


def address_of(bus_id: str) -> str:
    """Return a PCI address in the kernel's notation: ``0000:3b:00.0`` for NVML's ``00000000:3B:00.0``."""
    domain, separator, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}{separator}{rest}" if separator else bus_id.lower()


def text_of(value: Any) -> str:  # noqa: ANN401 (bytes in older versions)
    """Return a text of the library as `str`."""
    return value.decode() if isinstance(value, bytes) else str(value)
