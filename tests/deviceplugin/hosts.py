"""A machine's /dev, /proc and /sys as folders, with cards that come and go."""

from dataclasses import replace
from pathlib import Path

from criproxy.deviceplugin.cards.inventory import Limits
from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from tests.nvml import Driver, write

GIB_OF_MIB = 1024
PATIENT = Limits(files_s=60.0, drivers_s=60.0, nvml_s=60.0)
"""A look that waits for all, however slow the machine is."""


class Host:
    """A machine below *root*, whose NVIDIA driver answers as `driver` does."""

    def __init__(self, root: Path, driver: Driver | None = None) -> None:
        self.root = root / "host"
        self.nvml = root / "nvml.json"
        self.use(driver or Driver())

    def use(self, driver: Driver) -> None:
        """NVML answers so from now on."""
        self.driver = driver
        write(self.nvml, driver)

    def plug(self, path: str, address: str = "", numa_node: int = -1, kind: str = "misc") -> None:
        """Add a card's node, with a PCI function where it has an *address*."""
        self.text(path)
        if address:
            self.pci(address, numa_node)
            link = self.root / "sys/class" / kind / path.rpartition("/")[2] / "device"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.root / "sys/bus/pci/devices" / address)

    def pci(self, address: str, numa_node: int, bus: str = "pci0000:00") -> None:
        """Add a PCI function."""
        folder = f"/sys/devices/{bus}/{address}"
        self.text(f"{folder}/numa_node", str(numa_node))
        self.text(f"{folder}/class", "0x030200")
        link = self.root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / folder.lstrip("/"))

    def unplug(self, path: str) -> None:
        """Take a node away."""
        (self.root / path.lstrip("/")).unlink()

    def gpu(self, gpu: Gpu) -> None:
        """Add what the driver shows of a GPU of NVIDIA's in /proc, /dev and /sys."""
        address = gpu.pci_bus_id[4:].lower()
        text = f"Model: \t\t {gpu.name}\nGPU UUID: \t {gpu.uuid}\nDevice Minor: \t {gpu.minor}\n"
        self.text(f"/proc/driver/nvidia/gpus/{address}/information", text)
        self.text(f"/dev/nvidia{gpu.minor}")
        self.pci(address, -1 if gpu.numa_node is None else gpu.numa_node)

    def mig(self, gpu: Gpu, *devices: MigDevice) -> Gpu:
        """Divide a GPU; its instances are in /proc, too."""
        for device in devices:
            self.text(f"/proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{device.gi}/ci{device.ci}/access")
        return replace(gpu, mig_enabled=True, mig=devices)

    def text(self, path: str, content: str = "") -> None:
        """Write a file."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def t4(index: int, numa_node: int | None = None) -> Gpu:
    """Return ``GPU-0`` and so on, at 0000:10:00.0 and so on."""
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="Tesla T4",
        memory_mib=15 * GIB_OF_MIB,
        compute_capability=(7, 5),
        minor=index,
        pci_bus_id=f"00000000:1{index}:00.0",
        numa_node=numa_node,
    )


def a100(index: int, numa_node: int | None = None) -> Gpu:
    """Return an A100 that is not divided."""
    gpu = t4(index, numa_node)
    return replace(
        gpu, name="NVIDIA A100-SXM4-40GB", memory_mib=40 * GIB_OF_MIB, compute_capability=(8, 0), mig_capable=True
    )


def part(place: int, profile: str = "1g.5gb", memory_mib: int = 4864) -> MigDevice:
    """Return ``MIG-1`` for the first, with GPU instance 1, and so on."""
    return MigDevice(uuid=f"MIG-{place + 1}", profile=profile, gi=place + 1, ci=0, index=place, memory_mib=memory_mib)
