"""The names of the parts of a machine, in the tree and in the picture."""

from collections import Counter
from collections.abc import Iterable, Mapping

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.hardware import Hardware, HugePages, PciDevice
from criproxy.model.machine.topology import Box, CpuKind, Level, NumaNode, Topology, home, nearest_cpus

LEVEL_NAMES = {Level.PACKAGE: "package", Level.DIE: "die", Level.NODE: "NUMA node", Level.L3: "L3", Level.L2: "L2"}

_FROM_ZERO = (
    *("device", "storage", "network", "display", "multimedia", "memory", "bridge", "communication", "system", "input"),
    *("docking", "processor", "serial bus", "wireless", "I/O controller", "satellite", "encryption"),
    *("signal processing", "accelerator", "instrumentation"),
)
PCI_CLASSES = {f"{code:02x}": name for code, name in enumerate(_FROM_ZERO)} | {"40": "coprocessor"}
"""The base classes of the PCI specification, by their two hexadecimal digits."""

MINOR_CLASSES = frozenset({"00", "05", "06", "07", "08", "09", "0a", "0c", "11", "13"})
"""Devices whose locality does not matter: bridges, host controllers, sensors. They are counted, not listed."""


def size(count_bytes: int) -> str:
    """Format a size in the largest binary unit that does not exceed it."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if count_bytes >= 1 << power:
            return f"{count_bytes / (1 << power):.1f}".removesuffix(".0") + f" {unit}"
    return f"{count_bytes // 1024} KiB"


def count(number: int, thing: str) -> str:
    """Return a number with its noun, in the plural if necessary."""
    plural = thing.removesuffix("y") + "ies" if thing.endswith("ry") else thing + "s"
    return f"{number:,} {thing if number == 1 else plural}"


def title(topology: Topology) -> str:
    """Describe the machine in a line."""
    memory_bytes = sum(node.memory_bytes for node in topology.nodes)
    parts = [
        count(len(topology.packages), "package"),
        count(len(topology.dies), "die") if topology.dies else "",
        count(len(topology.nodes), "NUMA node"),
        count(len(topology.cores), "core"),
        count(len(topology.online_cpus), "CPU"),
        size(memory_bytes) if memory_bytes else "",
    ]
    return ", ".join(part for part in parts if part)


def name(box: Box) -> str:
    """Return the name of *box*, without its contents."""
    if box.level is Level.PACKAGE and box.id < 0:
        return "package"
    part = "" if box.whole else " (part)"
    return f"{LEVEL_NAMES[box.level]} {box.id}{part}"


def same(box: Box) -> list[Box]:
    """Return the box and those inside with the same CPUs, as in a package with one NUMA node and one L3 cache."""
    chain = [box]
    while len(chain[-1].inside) == 1 and chain[-1].inside[0].cpus == box.cpus:
        chain.append(chain[-1].inside[0])
    return chain


def memory(node: NumaNode) -> str:
    """Describe the amount and kind of the memory of *node*."""
    if not node.memory_bytes:
        return "memory unknown" if node.normal_memory else "no memory"
    movable = "" if node.normal_memory else ", movable only"
    return f"{size(node.memory_bytes)} {node.kind.upper()}{movable}"


def near(topology: Topology, node: NumaNode) -> str:
    """Return the nodes closest to a memory-only *node*; empty if unknown."""
    close = [other.id for other in topology.nodes if other.cpus and other.cpus <= nearest_cpus(topology, node)]
    if not topology.distances or not close:
        return ""
    return f"distance {topology.distance(close[0], node.id)} from node {', '.join(map(str, close))}"


def pages(pages: HugePages) -> str:
    """Describe the huge pages of one size."""
    return f"{pages.total:,} huge pages of {size(pages.size_bytes)}, {pages.free:,} free"


def kind(kind: CpuKind) -> str:
    """Describe one kind of CPUs of a hybrid machine."""
    speeds = [
        f"{kind.base_khz / 1e6:.1f} GHz base" if kind.base_khz else "",
        f"{kind.max_khz / 1e6:.1f} GHz max" if kind.max_khz else "",
        f"capacity {kind.capacity}" if kind.capacity else "",
    ]
    return ", ".join(speed for speed in speeds if speed) or "speed unknown"


def base_class(device: PciDevice) -> str:
    """Return the two digits of the base class."""
    return device.class_id.removeprefix("0x").zfill(6)[:2].lower()


def pci(device: PciDevice) -> str:
    """Describe a device in a line."""
    ids = f"{device.vendor.removeprefix('0x')}:{device.device.removeprefix('0x')}"
    return f"{PCI_CLASSES.get(base_class(device), 'device')} {device.address} [{ids}]"


def major(devices: Iterable[PciDevice]) -> list[PciDevice]:
    """Return the devices that workloads use: GPUs, NICs, disks, accelerators."""
    return [device for device in devices if base_class(device) not in MINOR_CLASSES]


def minor(devices: Iterable[PciDevice]) -> str:
    """Return the number of the other devices, in words; empty if there are none."""
    classes = Counter(
        PCI_CLASSES.get(base_class(device), "device") for device in devices if base_class(device) in MINOR_CLASSES
    )
    total = sum(classes.values())
    kinds = ", ".join(f"{number} × {name}" for name, number in classes.most_common())
    return f"{count(total, 'other PCI function')} ({kinds})" if total else ""


class Extras:
    """The boxes to which memory-only nodes and PCI devices belong, below a root box."""

    def __init__(self, root: Box, hardware: Hardware) -> None:
        self._nodes: dict[Box, list[NumaNode]] = {}
        self._devices: dict[Box, list[PciDevice]] = {}
        topology = hardware.topology
        for node in topology.nodes:
            if not node.cpus:
                self._nodes.setdefault(home(root, nearest_cpus(topology, node)), []).append(node)
        for device in hardware.pci:
            self._devices.setdefault(home(root, device.local_cpus), []).append(device)

    def nodes(self, box: Box) -> list[NumaNode]:
        """Return the memory-only nodes closest to all of *box*."""
        return self._nodes.get(box, [])

    def devices(self, box: Box) -> list[PciDevice]:
        """Return the devices local to all of *box*."""
        return self._devices.get(box, [])


def marks(topology: Topology) -> Mapping[str, CpuSet]:
    """Return the CPUs with a special property, by its name; only properties that some CPUs have."""
    named = {
        "isolated": topology.isolated_cpus,
        "forbidden to pods": topology.forbidden_cpus,
        "offline": topology.offline_cpus,
    }
    return {word: cpus for word, cpus in named.items() if cpus}
