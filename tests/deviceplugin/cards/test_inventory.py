"""What the machine has to offer, found again when cards come and go, whatever hangs."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from psutil import Process

from criproxy.deviceplugin.cards import inventory
from criproxy.deviceplugin.cards.inventory import Inventory, Limits, Machine
from criproxy.deviceplugin.cards.nvml_inventory import NvmlProgram
from criproxy.devices.classes.builtin import AMD, NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.host import patience
from tests.deviceplugin.hosts import PATIENT, Host, a100, part, t4
from tests.deviceplugin.news import running
from tests.nvml import Driver, command

ALI = DeviceClass(name="ali-npu", resources=("aliyun.com/npu",), id_format="index", per_device=("/dev/npu{index}",))
AT_ONCE = replace(PATIENT, nvml_s=0.0)
"""NVML is not waited for."""


def machine(host: Host, *classes: DeviceClass, timeout_s: float = 60.0, limits: Limits = PATIENT) -> Machine:
    """Look at *host*."""
    return Machine(classes, host.root, NvmlProgram(command(host.nvml), timeout_s), limits)


@asynccontextmanager
async def watched(found: Machine) -> AsyncIterator[Callable[[], "asyncio.Future[Inventory]"]]:
    """Watch a machine; the next change is the result of a future."""
    waiting: list[asyncio.Future[Inventory]] = []

    def changed(now: Inventory) -> None:
        for future in waiting:
            future.set_result(now)
        waiting.clear()

    def upcoming() -> "asyncio.Future[Inventory]":
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    await found.scan()
    async with running(found.watch(changed)):
        yield upcoming
    await found.close()


async def test_both_nodes_of_a_card_of_dri(tmp_path: Path) -> None:
    """Its render node, by which programs compute, has another number, and the same PCI function."""
    host = Host(tmp_path)
    for number in (1, 2):
        host.plug(f"/dev/dri/card{number}", f"0000:0{number}:00.0", kind="drm")
        host.text(f"/dev/dri/renderD{129 - number}")
        host.text(f"/sys/bus/pci/devices/0000:0{number}:00.0/drm/renderD{129 - number}/dev")

    found = await machine(host, AMD).scan()

    assert [card.nodes for card in found.stock(AMD).cards] == [
        ("/dev/dri/card1", "/dev/dri/renderD128"),
        ("/dev/dri/card2", "/dev/dri/renderD127"),
    ]


async def test_nvidias_gpus_by_nvml(tmp_path: Path) -> None:
    """With what sysfs says of NUMA nodes and PCI classes, and the minor numbers of MIG capabilities."""
    host = Host(tmp_path)
    for gpu in (whole := t4(0, 1), divided := a100(1, 0)):
        host.gpu(gpu)
    host.use(Driver(gpus=(replace(whole, numa_node=None), host.mig(replace(divided, numa_node=None), part(0)))))
    host.text("/proc/driver/nvidia-caps/mig-minors", "gpu1/gi1/access 12\ngpu1/gi1/ci0/access 13\n")
    host.text("/dev/nvidia-caps-imex-channels/channel0")

    found = await machine(host, NVIDIA).scan()

    assert [(gpu.uuid, gpu.numa_node, gpu.pci_class, len(gpu.mig)) for gpu in found.gpus] == [
        ("GPU-0", 1, 0x030200, 0),
        ("GPU-1", 0, 0x030200, 1),
    ]
    assert found.minors == {(1, 1, None): 12, (1, 1, 0): 13}
    assert (found.platform, found.imex_channels, found.driver_version) == ("nvml", ("0",), "550.54.15")


async def test_without_nvml_the_driver_s_files_tell(tmp_path: Path) -> None:
    """UUID, product and place are known; not what MIG devices there are, but that there are some."""
    host = Host(tmp_path, Driver(fails=9))
    host.gpu(t4(0, 1))
    host.gpu(a100(1))
    host.mig(a100(1), part(0))

    found = await machine(host, NVIDIA).scan()

    assert [(gpu.uuid, gpu.name, gpu.minor, gpu.numa_node, gpu.mig_enabled) for gpu in found.gpus] == [
        ("GPU-0", "Tesla T4", 0, 1, False),
        ("GPU-1", "NVIDIA A100-SXM4-40GB", 1, None, True),
    ]
    assert found.gpus[0].pci_bus_id == "0000:10:00.0"
    assert found.problems == ("NVML: Driver Not Loaded",)


@pytest.mark.parametrize(
    ("path", "text", "fails", "platform"),
    [
        pytest.param("/dev/dxg", "", 0, "wsl", id="windows"),
        pytest.param("/etc/nv_tegra_release", "", 9, "tegra", id="tegra"),
        pytest.param("/sys/devices/soc0/family", "Tegra", 9, "tegra", id="tegra-family"),
        pytest.param("/etc/nv_tegra_release", "", 0, "nvml", id="tegra-with-nvml"),
        pytest.param("/dev/null", "", 9, "nvml", id="none"),
    ],
)
async def test_platforms(tmp_path: Path, path: str, text: str, fails: int, platform: str) -> None:
    """Windows and Tegra are known by their files."""
    host = Host(tmp_path, Driver(fails=fails))
    host.text(path, text)

    assert (await machine(host, NVIDIA).scan()).platform == platform


async def test_nvml_that_hangs(tmp_path: Path) -> None:
    """The GPUs known before stay, and the process that hangs is ended."""
    host = Host(tmp_path, Driver(gpus=(t4(0),)))
    program = NvmlProgram(command(host.nvml), 60.0)
    looking = Machine([NVIDIA], host.root, program, PATIENT)
    await looking.scan()
    before = set(Process().children())  # of other tests
    host.use(Driver(hangs=True))
    program._timeout_s = 0.05

    found = await looking.scan()

    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0"]
    assert found.problems == (found.nvml_problem,) == ("NVML has not answered for 0.05 s",)
    assert set(Process().children()) <= before


async def test_errors_of_nvml(tmp_path: Path) -> None:
    """The last answer counts, also for another look that starts from scratch; the first error says since when."""
    host = Host(tmp_path, Driver(gpus=(t4(0),)))
    looking = machine(host, NVIDIA)
    before = await looking.scan()
    host.use(Driver(fails=18))
    found, other = await looking.scan(), await Machine([NVIDIA, ALI], host.root, looking._nvml, PATIENT).scan()
    again = await looking.scan()

    assert (found.gpus, found.pending, found.answered_s) == (before.gpus, False, before.answered_s)
    assert (other.gpus, other.pending) == (before.gpus, False)
    assert "version mismatch" in found.nvml_problem
    assert found.nvml_since_s == again.nvml_since_s
    host.use(Driver(gpus=(t4(0), t4(1))))
    now = await looking.scan()
    assert (len(now.gpus), now.nvml_problem, now.nvml_since_s) == (2, "", None)


async def test_a_question_while_another_one_is_open(tmp_path: Path) -> None:
    """The answer to the first one may be older than what the second one is about: NVML is asked once more."""
    host = Host(tmp_path, Driver(gpus=(t4(0),)))
    looking = machine(host, NVIDIA)
    async with watched(looking) as upcoming:
        asked = asyncio.create_task(looking._nvml.query(60.0, lambda: None))
        await asyncio.sleep(0)
        assert looking._nvml.runs
        change = upcoming()
        looking.wake()
        await asked
        first = await change
        second = await upcoming()

    assert (first.answered_s or 0) < (second.answered_s or 0)


async def test_nvml_that_takes_long(tmp_path: Path) -> None:
    """Others do not wait for it: what the files of the driver tell is known at once, and all when NVML has answered."""
    host = Host(tmp_path, Driver(gpus=(t4(0),)))
    host.gpu(t4(0))
    host.plug("/dev/npu0")
    looking = machine(host, NVIDIA, ALI, limits=AT_ONCE)
    async with watched(looking) as upcoming:
        first, change = looking.latest, upcoming()
        now = first if not first.pending else await change

    assert (first.pending, first.problems) == (True, ("NVML has not answered yet",))
    assert [(gpu.uuid, gpu.memory_mib) for gpu in first.gpus] == [("GPU-0", 0)]
    assert len(first.stock(ALI).cards) == 1
    assert (now.pending, now.problems) == (False, ())
    assert now.gpus[0].memory_mib == t4(0).memory_mib


async def test_a_gpu_that_is_lost(tmp_path: Path) -> None:
    """It stays, with its MIG devices, since it was there; and NVML's reason is told."""
    gpu = replace(a100(0), mig_enabled=True, mig=(part(0),))
    host = Host(tmp_path, Driver(gpus=(gpu, t4(1))))
    looking = machine(host, NVIDIA)
    await looking.scan()
    host.use(Driver(gpus=(gpu, t4(1)), lost=(0,)))

    found = await looking.scan()
    again = await looking.scan()

    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0", "GPU-1"]
    assert found.lost == {"GPU-0": "GPU is lost", "MIG-1": "GPU is lost"}
    assert found.problems == ("NVML cannot describe GPU 0: GPU is lost",)
    assert again == replace(found, answered_s=again.answered_s)


async def test_a_gpu_that_is_lost_while_indexes_change(tmp_path: Path) -> None:
    """NVML counts one that it cannot describe: that may be any of those that are missing, so none of them is gone."""
    host = Host(tmp_path, Driver(gpus=(t4(0), t4(1), t4(2))))
    looking = machine(host, NVIDIA)
    await looking.scan()
    host.use(Driver(gpus=(replace(t4(2), index=0), replace(t4(0), index=1)), lost=(1,)))

    found = await looking.scan()

    assert {gpu.uuid for gpu in found.gpus} == {"GPU-0", "GPU-1", "GPU-2"}
    assert found.lost == {"GPU-0": "GPU is lost", "GPU-1": "GPU is lost"}


async def test_a_card_that_comes_and_goes(tmp_path: Path) -> None:
    """Each is noticed without being told."""
    host = Host(tmp_path)
    host.plug("/dev/npu0")
    looking = machine(host, ALI)
    async with watched(looking) as upcoming:
        change = upcoming()
        host.plug("/dev/npu1")
        assert [card.number for card in (await change).stock(ALI).cards] == [0, 1]
        change = upcoming()
        host.unplug("/dev/npu0")
        assert [card.number for card in (await change).stock(ALI).cards] == [1]


async def test_nvml_that_works_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again while there are cards of NVIDIA's: the library may be installed after the driver."""
    monkeypatch.setattr(inventory, "NVML_RETRY_S", 0.0)
    host = Host(tmp_path, Driver(fails=9))
    host.gpu(t4(0))
    async with watched(machine(host, NVIDIA)) as upcoming:
        change = upcoming()
        host.use(Driver(gpus=(t4(0),)))

        assert (await change).gpus[0].memory_mib == t4(0).memory_mib


async def test_other_classes_after_a_reload(tmp_path: Path) -> None:
    """They are looked for at once."""
    host = Host(tmp_path)
    host.plug("/dev/npu0")
    looking = machine(host)
    async with watched(looking) as upcoming:
        change = upcoming()
        looking.use([ALI])

        assert len((await change).stock(ALI).cards) == 1


def hang(file: Path) -> None:
    """Let each read of *file* wait, as for a driver that hangs."""
    file.unlink()
    os.mkfifo(file)


def release(file: Path, text: str) -> None:
    """Let those who read *file* go, and the next ones read *text*."""
    file.write_text("")
    file.unlink()
    file.write_text(text)


QUICK = replace(PATIENT, drivers_s=0.1)
"""Files of drivers are not waited for long; what others did not say in time is in one of the next looks."""


async def test_a_card_whose_place_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there without a NUMA node, all others are as ever, and the file is named with its card until it answers."""
    monkeypatch.setattr(inventory, "NVML_RETRY_S", 0.0)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.0)
    host = Host(tmp_path, Driver(gpus=(t4(0),)))
    host.gpu(t4(0, 1))
    for number in range(2):
        host.plug(f"/dev/npu{number}", f"0000:3{number}:00.0", 1)
    hang(file := host.root / "sys/devices/pci0000:00/0000:30:00.0/numa_node")
    looking = machine(host, NVIDIA, ALI, limits=QUICK)

    def places() -> list[int | None]:
        npus = [card.numa_node for card in looking.latest.stock(ALI).cards]
        return [*npus, *(gpu.numa_node for gpu in looking.latest.gpus)]

    async with watched(looking) as upcoming:
        while places() != [-1, 1, 1] or looking.latest.problems != (f"{file} of ali-npu 0 hangs",):
            await upcoming()
        release(file, "0")
        while places() != [0, 1, 1] or looking.latest.problems:
            await upcoming()
