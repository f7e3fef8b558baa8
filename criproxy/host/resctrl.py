"""What resctrl can divide on this machine: its mount, and what the files below ``info`` say."""

from collections.abc import Mapping
from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.host.files import mounts, read_number, read_text
from criproxy.model.machine.resctrl import Bandwidth, Cache, Resctrl, parse_lines

MOUNT = "sys/fs/resctrl"
"""Where it is usually mounted."""
_CACHES = ("L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA")
_PERCENT = 100
_AMD = (1, 1)
"""The least value and the step of bandwidths with AMD."""


def find_resctrl(host_root: Path) -> tuple[Path, frozenset[str]] | None:
    """Return where resctrl is mounted below *host_root*, and its options; None if it is not mounted."""
    return next(((place, options) for place, kind, options in mounts(host_root) if kind == "resctrl"), None)


def read_resctrl(host_root: Path) -> Resctrl:
    """Read what the machine below *host_root* can divide.

    Raises:
        CriproxyError: Nothing; the text says what is missing, and how to have it.
    """
    mount = find_resctrl(host_root)
    if not mount:
        if "resctrl" in (read_text(host_root / "proc/filesystems") or "").split():
            raise CriproxyError(f"resctrl is not mounted: mount -t resctrl resctrl /{MOUNT}")
        raise CriproxyError("this machine has no resctrl: its kernel lacks it, or its processor Intel RDT and AMD PQoS")
    place, options = mount
    root = parse_lines(read_text(place / "schemata") or "")
    found = {name: cache for name in _CACHES if (cache := _cache(place / "info" / name, tuple(root.get(name, ()))))}
    bandwidth = _bandwidth(place / "info/MB", root.get("MB", {}), in_mbps="mba_MBps" in options)
    if not found and not bandwidth:
        raise CriproxyError(f"resctrl at {place} can divide neither caches nor memory bandwidth on this machine")
    counts = [read_number(place / "info" / name / "num_closids") for name in (*found, *(["MB"] if bandwidth else []))]
    return Resctrl(caches=found, bandwidth=bandwidth, groups=min((count for count in counts if count), default=1))


def _cache(info: Path, ids: tuple[int, ...]) -> Cache | None:
    """Read one of the folders below ``info``; None if it is not there or says nothing."""
    try:
        mask = int(read_text(info / "cbm_mask") or "0", 16)
    except ValueError:
        return None
    if not mask or not ids:
        return None
    least = read_number(info / "min_cbm_bits") or 1
    return Cache(ids=ids, mask=mask, least_bits=least, sparse=read_number(info / "sparse_masks") == 1)


def _bandwidth(info: Path, values: Mapping[int, int], *, in_mbps: bool) -> Bandwidth | None:
    least, step = read_number(info / "min_bandwidth"), read_number(info / "bandwidth_gran")
    if least is None or not values:
        return None
    # AMD has no percentages, but units of 1/8 GB/s, of which the root group has more than 100 unless it is limited.
    unlimited = max(_PERCENT, *values.values()) if (least, step) == _AMD and not in_mbps else _PERCENT
    return Bandwidth(ids=tuple(values), least=least, step=step or 1, unlimited=unlimited, in_mbps=in_mbps)
