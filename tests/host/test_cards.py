"""The accelerators of a machine, as its device nodes and drivers show them."""

import json
from collections.abc import Iterable, Mapping
from os import mkfifo
from pathlib import Path
from shutil import rmtree
from types import MappingProxyType

import pytest

from criproxy.devices.classes.builtin import AMD, BUILTIN, HABANA, INTEL_GPU, INTEL_NPU, NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.host.cards import CdiSpecs, DriverFiles, find_cards
from tests.host.tree import plant

ALI = DeviceClass(
    name="ali-npu",
    resources=("aliyun.com/npu",),
    per_device=("/dev/npu{index}", "/dev/npus/{index}/ctl"),
    shared=("/dev/npu_*",),
)


def write(path: Path, text: str = "") -> None:
    """One file with its folders."""
    plant(path.parent, {path.name: text})


def test_a_machine_without_accelerators(tmp_path: Path) -> None:
    """Nothing of any class, and no failure where there is not even a /dev."""
    assert find_cards(BUILTIN.values(), tmp_path) == dict.fromkeys(BUILTIN, Stock())


def test_nvidia_tells_uuids_in_the_order_of_its_driver(tmp_path: Path) -> None:
    """Cards come by PCI address, as their indexes count; minor numbers and UUIDs are those that /proc says."""
    for address, minor, uuid in (("0000:af:00.0", 0, "GPU-b"), ("0000:3b:00.0", 1, "GPU-a")):
        text = (
            f"Model: \t\t Tesla T4\nIRQ:   \t\t 33\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\nDevice Minor: \t {minor}\n"
        )
        write(tmp_path / f"proc/driver/nvidia/gpus/{address}/information", text)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "nvidia0x", "null"):
        write(tmp_path / "dev" / name)

    stock = find_cards([NVIDIA], tmp_path)["nvidia"]

    # The node of minor 1 is made when the card is first used.
    assert stock.cards == (Card(1, (), "GPU-a", "0000:3b:00.0"), Card(0, ("/dev/nvidia0",), "GPU-b", "0000:af:00.0"))
    assert (stock.shared, stock.card(NVIDIA, "0")) == (("/dev/nvidiactl", "/dev/nvidia-uvm"), stock.cards[0])
    assert stock.card(NVIDIA, "GPU-b") == stock.cards[1]


def test_without_a_list_of_the_driver_nodes_are_cards(tmp_path: Path) -> None:
    """They come by number, and no id means one of them."""
    for number in (10, 2):
        write(tmp_path / f"dev/nvidia{number}")

    stock = find_cards([NVIDIA], tmp_path)["nvidia"]

    assert stock.cards == (Card(2, ("/dev/nvidia2",)), Card(10, ("/dev/nvidia10",)))
    assert stock.card(NVIDIA, "2") is None
    assert stock.card(NVIDIA, "") is None


def test_vendors_that_share_paths(tmp_path: Path) -> None:
    """A node is its vendor's, where the kernel says whose it is."""
    for name, vendor in (("dri/card0", "0x8086"), ("dri/card1", "0x1002"), ("accel/accel0", "0x1da3")):
        write(tmp_path / "dev" / name)
        folder = "drm" if name.startswith("dri") else "accel"
        write(tmp_path / "sys/class" / folder / Path(name).name / "device/vendor", f"{vendor}\n")
    write(tmp_path / "dev/kfd")

    found = find_cards([AMD, INTEL_GPU, INTEL_NPU, HABANA], tmp_path)

    assert found["amd"] == Stock((Card(1, ("/dev/dri/card1",)),), ("/dev/kfd",))
    assert (found["intel-gpu"], found["intel-npu"]) == (Stock((Card(0, ("/dev/dri/card0",)),)), Stock())
    assert found["habana"] == Stock((Card(0, ("/dev/accel/accel0",)),))


def test_a_class_of_ones_own(tmp_path: Path) -> None:
    """Every path of a card counts, wherever its number stands; shared nodes are found by pattern."""
    for name in ("npu0", "npu1", "npus/1/ctl", "npu_manager", "npux"):
        write(tmp_path / "dev" / name)

    assert find_cards([ALI], tmp_path)["ali-npu"] == Stock(
        (Card(0, ("/dev/npu0",)), Card(1, ("/dev/npu1", "/dev/npus/1/ctl"))), ("/dev/npu_manager",)
    )


def bridge(host_root: Path, link: str, path: str, numa_node: int | None, **files: str) -> None:
    """A PCI function at *path* below /sys/devices, and a link in sysfs that leads there."""
    folder = host_root / "sys/devices" / path
    folder.mkdir(parents=True, exist_ok=True)
    plant(folder, files if numa_node is None else {**files, "numa_node": f"{numa_node}\n"})
    (host_root / link).parent.mkdir(parents=True, exist_ok=True)
    (host_root / link).symlink_to(folder)


def test_where_nvidias_cards_are(tmp_path: Path) -> None:
    """By the PCI address that the driver lists: their node, the CPUs next to them, and what leads to them."""
    text = "GPU UUID: \t GPU-a\nDevice Minor: \t 0\n"
    write(tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0/information", text)
    path = "pci0000:3a/0000:3a:00.0/0000:3b:00.0"
    bridge(tmp_path, "sys/bus/pci/devices/0000:3b:00.0", path, 1, local_cpulist="16-31\n")

    (card,) = find_cards([NVIDIA], tmp_path)["nvidia"].cards

    assert (card.pci, card.bridges) == ("0000:3b:00.0", ("pci0000:3a", "0000:3a:00.0"))
    assert (card.numa_node, card.local_cpus) == (1, frozenset(range(16, 32)))


def test_where_other_cards_are(tmp_path: Path) -> None:
    """By the class of their node, and not by a sound card of the same name; the address is that of the uevent."""
    write(tmp_path / "dev/dri/card1")
    write(tmp_path / "dev/npu0")
    bridge(tmp_path, "sys/class/sound/card1/device", "pci0000:00/0000:00:1f.3", 0)
    slot = "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:43:00.0\n"
    bridge(tmp_path, "sys/class/drm/card1/device", "pci0000:40/x", 1, uevent=slot, vendor="0x1002\n")
    bridge(tmp_path, "sys/class/npu/npu0/device", "pci0000:80/0000:81:00.0/npu", None)
    write(tmp_path / "sys/devices/pci0000:80/0000:81:00.0/numa_node", "3\n")

    found = find_cards([AMD, ALI], tmp_path)

    (gpu,), (npu,) = found["amd"].cards, found["ali-npu"].cards
    assert (gpu.pci, gpu.numa_node, gpu.bridges) == ("0000:43:00.0", 1, ("pci0000:40",))
    assert (npu.pci, npu.numa_node, npu.bridges) == ("0000:81:00.0", 3, ("pci0000:80",))
    assert found["amd"].card(AMD, "0000:43:00.0") is gpu


def test_a_firmware_that_says_nothing(tmp_path: Path) -> None:
    """The node is unknown, and so are CPUs of which the list is nonsense."""
    text = "GPU UUID: \t GPU-a\nDevice Minor: \t 0\n"
    write(tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information", text)
    bridge(tmp_path, "sys/bus/pci/devices/0000:01:00.0", "pci0000:00/0000:01:00.0", -1, local_cpulist="?\n")

    (card,) = find_cards([NVIDIA], tmp_path)["nvidia"].cards

    assert (card.numa_node, card.local_cpus) == (-1, frozenset())


def test_a_card_that_vanishes_during_a_scan(tmp_path: Path) -> None:
    """It counts in that scan, with what was read of it; bridges have a NUMA node, too."""
    write(tmp_path / "dev/npu0")
    path = "pci0000:80/0000:80:01.0/0000:81:00.0"
    bridge(tmp_path, "sys/bus/pci/devices/0000:80:01.0", "pci0000:80/0000:80:01.0", 3)
    bridge(tmp_path, "sys/class/npu/npu0/device", path, 3)

    class Unplugged(DriverFiles):
        def read(self, paths: Iterable[Path], cards: Mapping[Path, str] = MappingProxyType({})) -> list[str]:
            texts = DriverFiles.read(self, paths, cards)
            rmtree(tmp_path / "sys/devices" / path)
            return texts

    (card,) = find_cards([ALI], tmp_path, Unplugged())["ali-npu"].cards

    assert (card.pci, card.numa_node, card.bridges) == ("0000:81:00.0", 3, ("pci0000:80", "0000:80:01.0"))


def test_files_of_a_card_that_hang(tmp_path: Path) -> None:
    """They hold up no other card, also the first time; whose vendor cannot be read is taken for the class's own."""
    for number in range(2):
        write(tmp_path / f"dev/dri/card{number}")
        write(tmp_path / f"sys/class/drm/card{number}/device/vendor", AMD.pci_vendor)
        write(tmp_path / f"sys/class/drm/card{number}/device/numa_node", "1")
    hanging = [tmp_path / "sys/class/drm/card0/device" / name for name in ("vendor", "numa_node")]
    for file in hanging:
        file.unlink()
        mkfifo(file)
    files = DriverFiles(timeout_s=0.05)

    # What does not hang and was not there in time is there the next time.
    while [card.numa_node for card in find_cards([AMD], tmp_path, files)["amd"].cards] != [-1, 1]:
        pass

    assert {f"{hanging[1]} of amd 0", f"{hanging[0]} of /dev/dri/card0"} <= files.patience.hanging.keys()
    for file in hanging:
        file.write_text("")  # lets the thread go


def test_cdi_specifications_that_hang(tmp_path: Path) -> None:
    """Cards are found all the same, with what the specifications said before."""
    write(tmp_path / "dev/nvidia0")
    path, edits = tmp_path / "etc/cdi/nvidia.json", {"env": [f"{NVIDIA.visible_env}=void"]}
    devices = [{"name": "0", "containerEdits": edits}]
    write(path, json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}))
    files = DriverFiles(timeout_s=0.05)
    while not (before := find_cards([NVIDIA], tmp_path, files)["nvidia"]).cdi_sets:
        pass
    path.unlink()
    mkfifo(path)

    assert find_cards([NVIDIA], tmp_path, files)["nvidia"] == before
    assert "the CDI specifications of nvidia" in files.patience.hanging
    path.write_text("")  # lets the thread go


# ---------------------------------------------------------------- what CDI specifications say


VISIBLE = "NVIDIA_VISIBLE_DEVICES=void"


def spec(*names: str, of_all: str = "", own: str = "", kind: str = "nvidia.com/gpu") -> str:
    """A specification of these devices."""
    return json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": kind,
            "devices": [{"name": name, "containerEdits": {"env": [own] if own else []}} for name in names],
            "containerEdits": {"env": [of_all]} if of_all else {},
        }
    )


@pytest.mark.parametrize(
    ("files", "sets"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"etc/cdi/a.json": spec("0")}, {"nvidia.com/gpu=0": False}, id="silent"),
        pytest.param({"etc/cdi/a.yaml": spec("0", of_all=VISIBLE)}, {"nvidia.com/gpu=0": True}, id="for-all"),
        pytest.param({"var/run/cdi/a.json": spec("0", own=VISIBLE)}, {"nvidia.com/gpu=0": True}, id="its-own"),
        pytest.param(
            {"etc/cdi/a.json": spec("0"), "var/run/cdi/b.json": spec("0", own=VISIBLE)},
            {"nvidia.com/gpu=0": True},
            id="the-later-folder",
        ),
        pytest.param({"etc/cdi/a.json": spec("0", kind="vendor.example/x")}, {}, id="foreign"),
        pytest.param({"etc/cdi/a.json": "{"}, {}, id="no-json"),
        pytest.param({"etc/cdi/a.yaml": "a: [\n"}, {}, id="no-yaml"),
        pytest.param({"etc/cdi/a.json": '["x"]'}, {}, id="no-spec"),
        pytest.param({"etc/cdi/a.json": '{"kind": "nvidia.com/gpu", "devices": 7}'}, {}, id="no-devices"),
        pytest.param({"etc/cdi/a.txt": spec("0")}, {}, id="another-file"),
    ],
)
def test_what_is_set(tmp_path: Path, files: dict[str, str], sets: dict[str, bool]) -> None:
    """Edits of all devices and of one count; what cannot be read says nothing, and is not read again."""
    specs = CdiSpecs()
    plant(tmp_path, files)

    assert specs.sets(NVIDIA, tmp_path) == specs.sets(NVIDIA, tmp_path) == sets


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    """As a driver for claims writes one for each."""
    write(path := tmp_path / "var/run/cdi/a.json", spec("0"))
    specs = CdiSpecs()
    specs.sets(NVIDIA, tmp_path)

    path.write_text(spec("0", "11"))

    assert specs.sets(NVIDIA, tmp_path).keys() == {"nvidia.com/gpu=0", "nvidia.com/gpu=11"}
