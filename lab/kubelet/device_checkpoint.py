"""The checkpoint of the kubelet's device manager: the file by which it knows after a restart who has which devices.

In the format since Kubernetes 1.20, which has the ids by NUMA node.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lab.kubelet.device_endpoint import Devices, Given, Key

_NO_NODE = -1
"""What stands for the NUMA node of a device whose plugin names none."""


def write(path: Path, given: Mapping[Key, Mapping[str, Given]], devices: Mapping[str, Devices]) -> None:
    """Replace the file.

    Args:
        path: of the file.
        given: what containers have, by resource.
        devices: what plugins offer, by resource.
    """
    entries = [
        {
            "PodUID": pod_uid,
            "ContainerName": container,
            "ResourceName": resource,
            "DeviceIDs": _by_node(devices.get(resource, Devices()), each.ids),
            "AllocResp": base64.b64encode(each.response).decode(),
        }
        for (pod_uid, container), resources in given.items()
        for resource, each in resources.items()
    ]
    replace(path, entries, {name: sorted(each.healthy) for name, each in devices.items()})


def replace(path: Path, entries: Sequence[Mapping[str, object]], registered: Mapping[str, Sequence[str]]) -> None:
    """Replace the file as the kubelet does, with a rename."""
    text = json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 1})
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.replace(path)


def read(path: Path) -> tuple[dict[Key, dict[str, Given]], list[str]]:
    """What containers have, by resource, and the resources that had plugins; nothing where there is no file."""
    given: dict[Key, dict[str, Given]] = {}
    if not path.exists():
        return given, []
    data = json.loads(path.read_text())["Data"]
    for entry in data["PodDeviceEntries"]:
        ids = tuple(dict.fromkeys(each for those in entry["DeviceIDs"].values() for each in those))
        one = Given(ids, base64.b64decode(entry["AllocResp"]))
        given.setdefault((entry["PodUID"], entry["ContainerName"]), {})[entry["ResourceName"]] = one
    return given, list(data["RegisteredDevices"])


def _by_node(devices: Devices, ids: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in ids:
        for node in devices.numa_nodes.get(each) or (_NO_NODE,):
            found.setdefault(str(node), []).append(each)
    return found
