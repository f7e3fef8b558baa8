"""The command line of QEMU for a guest."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.grant import NO_CPUS

PMEM_STEP_MIB = 128
"""Memory is added to a running kernel in sections of this size."""


@dataclass(frozen=True, slots=True)
class GuestNode:
    """A NUMA node."""

    memory_mib: int
    cpus: CpuSet = NO_CPUS
    pmem: bool = False
    """Persistent memory that the guest uses as system RAM: no CPUs, movable pages only."""


@dataclass(frozen=True, slots=True)
class Chips:
    """What the processors look like; each number counts within one of the step before."""

    sockets: int = 1
    cores: int = 1
    threads: int = 1

    @property
    def cpus(self) -> CpuSet:
        """All logical CPUs. They are numbered by socket, core and thread: siblings are neighbours."""
        return frozenset(range(self.sockets * self.cores * self.threads))


@dataclass(frozen=True, slots=True)
class GuestMachine:
    """A machine."""

    name: str
    about: str
    chips: Chips
    nodes: tuple[GuestNode, ...]
    distances: tuple[tuple[int, ...], ...] = ()
    """A row for each node, as in the kernel's files; empty leaves them to QEMU (10 and 20)."""

    @property
    def dram_mib(self) -> int:
        """Memory that is there at boot."""
        return sum(node.memory_mib for node in self.nodes if not node.pmem)

    @property
    def pmem_nodes(self) -> dict[int, GuestNode]:
        """The memory-only nodes by id."""
        return {number: node for number, node in enumerate(self.nodes) if node.pmem}

    def nodes_of(self, cpus: CpuSet) -> frozenset[int]:
        """The ids of the nodes that any of *cpus* belongs to."""
        return frozenset(number for number, node in enumerate(self.nodes) if node.cpus & cpus)


def _ring_distance(one: int, other: int) -> int:
    """Between nodes of four sockets in a ring, two nodes a socket."""
    if one == other:
        return 10
    hops = abs(one // 2 - other // 2)
    return (16, 22, 28, 22)[hops]


def _nodes(memory_mib: int, *cpus: str) -> tuple[GuestNode, ...]:
    return tuple(GuestNode(memory_mib, parse_cpuset(part)) for part in cpus)


_PMEM = GuestNode(512, pmem=True)

NAMED = {
    machine.name: machine
    for machine in (
        GuestMachine("1s-1n", "one node of 4 cores without SMT", Chips(cores=4), _nodes(1536, "0-3")),
        GuestMachine(
            "2s-4n-smt",
            "2 sockets of 2 cores with 2 threads; sub-NUMA clustering makes 2 nodes of a socket",
            Chips(sockets=2, cores=2, threads=2),
            _nodes(512, "0-1", "2-3", "4-5", "6-7"),
            ((10, 11, 21, 21), (11, 10, 21, 21), (21, 21, 10, 11), (21, 21, 11, 10)),
        ),
        GuestMachine(
            "2s-2n+2pmem",
            "2 sockets of 2 cores with 2 threads; beside each socket's node one of persistent memory only",
            Chips(sockets=2, cores=2, threads=2),
            (*_nodes(768, "0-3", "4-7"), _PMEM, _PMEM),
            ((10, 21, 17, 28), (21, 10, 28, 17), (17, 28, 10, 28), (28, 17, 28, 10)),
        ),
        GuestMachine(
            "4s-8n",
            "4 sockets of 4 cores without SMT, in a ring; 2 nodes a socket",
            Chips(sockets=4, cores=4),
            _nodes(320, *(f"{2 * number}-{2 * number + 1}" for number in range(8))),
            tuple(tuple(_ring_distance(one, other) for other in range(8)) for one in range(8)),
        ),
    )
}


PROGRAM = "qemu-system-x86_64"

# With an Intel vendor Linux reads threads, dies and the L3 of a die from CPUID leaves that QEMU fills; an AMD one would
# need topoext, which emulation lacks.
_CPU_MODEL = "max,vendor=GenuineIntel,family=6,model=85,stepping=7,la57=off,l3-cache=on,model-id=QEMU TCG"
_DEVICES = {"gpu": "bochs-display", "nic": "e1000e", "": "virtio-rng-pci"}
_KERNEL_ARGUMENTS = (
    "console=ttyS0 panic=-1 rdinit=/init quiet loglevel=4 memhp_default_state=online_movable reboot=t tsc=nowatchdog "
    "nowatchdog mitigations=off rcupdate.rcu_expedited=1 cgroup_no_v1=all"
)


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI device behind a bridge of its own."""

    node: int
    device: str
    """A name of QEMU."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a guest consists of."""

    machine: GuestMachine
    pci: tuple[PciDevice, ...] = ()
    isolated: CpuSet = NO_CPUS
    """CPUs that the kernel schedules nothing on by itself."""
    kernel_arguments: str = ""
    """More of them."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A folder of the host in the guest."""

    tag: str
    path: Path
    read_only: bool = False


def parse_pci(text: str, machine: GuestMachine) -> PciDevice:
    """A device from ``NODE[:gpu|nic|DEVICE]``; ValueError says what is wrong with it."""
    number, _, kind = text.partition(":")
    if not number.isdigit() or int(number) >= len(machine.nodes):
        raise ValueError(f"--pci: {text!r} does not begin with a node from 0 to {len(machine.nodes) - 1}")
    return PciDevice(int(number), _DEVICES.get(kind, kind))


def command(
    hardware: Hardware, kernel: Path, initramfs: Path, folders: list[Shared], console: Path, *, terminal: bool = False
) -> list[str]:
    """What starts the guest.

    Args:
        hardware: what it consists of.
        kernel: an uncompressed one.
        initramfs: an archive.
        folders: what the guest can mount by their tags.
        console: the file that gets what its kernel says.
        terminal: whether our standard input and output become its ``/dev/hvc0``.
    """
    isolated = f"isolcpus={format_cpuset(hardware.isolated)}" if hardware.isolated else ""
    kernel_arguments = " ".join(filter(None, [_KERNEL_ARGUMENTS, isolated, hardware.kernel_arguments]))
    words = [PROGRAM, "-name", "criproxy-vm", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    # With a thread for each CPU, guests on a busy host wait for locks that a waiting thread holds: twice the time.
    words += ["-accel", "tcg,thread=single", "-cpu", _CPU_MODEL]
    words += _board(hardware.machine)
    for number, device in enumerate(hardware.pci):
        words += _bridged(number, device)
    for folder in folders:
        words += _folder(folder)
    if terminal:
        words += ["-chardev", "stdio,id=tty,signal=off", "-device", "virtio-serial-pci,bus=pcie.0"]
        words += ["-device", "virtconsole,chardev=tty"]
    words += ["-kernel", str(kernel), "-initrd", str(initramfs), "-append", kernel_arguments]
    return [*words, "-chardev", f"file,id=console,path={_escaped(console)}", "-serial", "chardev:console"]


def _board(machine: GuestMachine) -> Iterator[str]:
    pmem = machine.pmem_nodes
    chips = machine.chips
    yield from ("-machine", "q35,usb=off,vmport=off,smbus=off,sata=off" + (",nvdimm=on" if pmem else ""))
    shape = f"sockets={chips.sockets},cores={chips.cores},threads={chips.threads}"
    yield from ("-smp", f"{len(chips.cpus)},{shape}")
    # Each memory device may need a GiB of addresses for its alignment.
    room = sum(node.memory_mib + 2048 for node in pmem.values())
    slots = f",slots={len(pmem)},maxmem={machine.dram_mib + room}M" if pmem else ""
    yield from ("-m", f"{machine.dram_mib}M{slots}")
    for number, node in enumerate(machine.nodes):
        # Of a persistent-memory device one section goes to its metadata and to what is no whole section.
        size = node.memory_mib + (PMEM_STEP_MIB if node.pmem else 0)
        yield from ("-object", f"memory-backend-ram,id=mem{number},size={size}M")
        memory = "" if node.pmem else f",memdev=mem{number}"
        cpus = "".join(f",cpus={part}" for part in format_cpuset(node.cpus).split(",") if part)
        yield from ("-numa", f"node,nodeid={number}{cpus}{memory}")
    for number in pmem:
        yield from ("-device", f"nvdimm,id=pmem{number},memdev=mem{number},node={number}")
    for source, row in enumerate(machine.distances):
        for target, distance in enumerate(row):
            yield from ("-numa", f"dist,src={source},dst={target},val={distance}")


def _bridged(number: int, device: PciDevice) -> Iterator[str]:
    """A host bridge on the device's node, a port of it, and the device in the port."""
    bus = 32 + 16 * number
    yield from ("-device", f"pxb-pcie,id=host{number},bus=pcie.0,bus_nr={bus},numa_node={device.node}")
    yield from ("-device", f"pcie-root-port,id=port{number},bus=host{number},chassis={number + 1}")
    yield from ("-device", f"{device.device},bus=port{number}")


def _folder(folder: Shared) -> Iterator[str]:
    mode = "on" if folder.read_only else "off"
    options = f"security_model=none,readonly={mode},multidevs=remap"
    yield from ("-fsdev", f"local,id={folder.tag},path={_escaped(folder.path)},{options}")
    yield from ("-device", f"virtio-9p-pci,bus=pcie.0,fsdev={folder.tag},mount_tag={folder.tag}")


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")
