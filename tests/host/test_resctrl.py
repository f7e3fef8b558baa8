"""What resctrl says of a machine is read, and what is missing said."""

from pathlib import Path

import pytest

from criproxy.errors import CriproxyError
from criproxy.host.resctrl import read_resctrl
from criproxy.model.machine.resctrl import Bandwidth, Cache, Resctrl
from tests.host.tree import plant

MOUNTED = {"proc/mounts": "resctrl /sys/fs/resctrl resctrl rw,relatime 0 0\n"}
CACHE = {"cbm_mask": "fffff\n", "min_cbm_bits": "1\n", "num_closids": "16\n"}


def mounted(schemata: str, **folders: dict[str, str]) -> dict[str, str]:
    """Return the files of a machine: the schemata of the root group, and the folders below ``info``."""
    info = {f"{name}/{file}": content for name, files in folders.items() for file, content in files.items()}
    below = {"schemata": schemata} | {f"info/{path}": content for path, content in info.items()}
    return MOUNTED | {f"sys/fs/resctrl/{path}": content for path, content in below.items()}


INTEL = {"min_bandwidth": "10\n", "bandwidth_gran": "10\n", "num_closids": "8\n"}
AMD = {"min_bandwidth": "1\n", "bandwidth_gran": "1\n", "num_closids": "16\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            mounted("    MB:0= 100;1= 100\n    L3:0=fffff;1=fffff\n", L3=CACHE, MB=INTEL),
            Resctrl(caches={"L3": Cache(ids=(0, 1), mask=0xFFFFF)}, bandwidth=Bandwidth(ids=(0, 1)), groups=8),
            id="intel",
        ),
        pytest.param(
            mounted("L3:0=fffff\nMB:0=2048\n", L3={**CACHE, "sparse_masks": "1\n"}, MB=AMD),
            Resctrl(
                caches={"L3": Cache(ids=(0,), mask=0xFFFFF, sparse=True)},
                bandwidth=Bandwidth(ids=(0,), least=1, step=1, unlimited=2048),
                groups=16,
            ),
            id="amd",
        ),
        pytest.param(
            mounted("L3CODE:0=fffff\nL3DATA:0=fffff\n", L3CODE=CACHE, L3DATA=CACHE),
            Resctrl(caches=dict.fromkeys(("L3CODE", "L3DATA"), Cache(ids=(0,), mask=0xFFFFF)), groups=16),
            id="cdp",
        ),
        pytest.param(
            {
                "proc/mounts": "resctrl /mnt/r resctrl rw,mba_MBps 0 0\n",
                **{f"mnt/r/info/MB/{name}": text for name, text in INTEL.items()},
                "mnt/r/schemata": "MB:0=4294967295\n",
            },
            Resctrl(bandwidth=Bandwidth(ids=(0,), in_mbps=True), groups=8),
            id="in-mbps-at-another-place",
        ),
    ],
)
def test_reads_what_can_be_divided(tmp_path: Path, files: dict[str, str], expected: Resctrl) -> None:
    """Each resource with its ids, limits and the number of groups."""
    assert read_resctrl(plant(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({}, "this machine has no resctrl", id="no-resctrl"),
        pytest.param({"proc/filesystems": "nodev\tresctrl\n"}, "mount -t resctrl resctrl /sys/fs/resctrl", id="mount"),
        pytest.param(MOUNTED, "can divide neither caches nor memory bandwidth", id="monitoring-only"),
    ],
)
def test_says_what_is_missing(tmp_path: Path, files: dict[str, str], said: str) -> None:
    """And how to have it."""
    with pytest.raises(CriproxyError, match=said):
        read_resctrl(plant(tmp_path, files))
