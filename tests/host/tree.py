"""Made-up /sys trees."""

from collections.abc import Mapping
from pathlib import Path


def plant(root: Path, files: Mapping[str, str]) -> Path:
    """Write *files* (path under the host root → content) and return *root*."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


TWO_NODES = {
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/node/has_normal_memory": "0-1\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node1/cpulist": "2-3\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       1048576 kB\nNode 0 MemFree: 1 kB\n",
    "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       2097152 kB\n",
    **{f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id": f"{cpu // 2}\n" for cpu in range(4)},
    **{
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": "0-1\n" if cpu < 2 else "2-3\n"
        for cpu in range(4)
    },
}
"""Four CPUs, two to a core, a node and a package."""
