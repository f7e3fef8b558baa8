"""MIG that is switched on and off while `criproxy device-plugin` runs: no file of the driver shows it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP

from tests.deviceplugin.hosts import a100, t4
from tests.deviceplugin.program import Program
from tests.nvml import Driver

CUT, SMALL = "criproxy.io/cut", "criproxy.io/small"
PROFILES = "{name: cut, class: nvidia, memory: 10Gi}"
IGNORED_XID, XID_TYPE = 31, 8
WITH_MIG = "without MIG; with MIG: GPU-0"


def xid(folder: Path, gpu: int, number: int) -> None:
    """Let NVML tell of an error of a GPU."""
    with (folder / "events").open("w") as events:
        events.write(json.dumps({"gpu": gpu, "type": XID_TYPE, "data": number}) + "\n")


async def started(program: Program, driver: Driver, profiles: str, more: str = "") -> None:
    """Start it with the GPUs of *driver*."""
    program.host.use(driver)
    for gpu in driver.gpus:
        program.host.gpu(gpu)
        program.host.mig(gpu, *gpu.mig)
    await program.begin(f"{{advertise: [nvidia], profiles: [{profiles}]{more}}}")


async def test_mig_that_is_switched_on_and_off(folder: Path) -> None:
    """The vGPUs of a GPU that gets MIG are withdrawn, and said why; they are back when it has lost MIG again."""
    os.mkfifo(folder / "events")
    driver = Driver(gpus=(a100(0), t4(1)), events=str(folder / "events"))
    async with Program(folder) as program:
        await started(program, driver, "{name: cut, class: nvidia, memory: 10Gi, select: {indexes: [0]}}")
        await program.kubelet.until_capacity(CUT, 4)
        program.host.use(replace(driver, gpus=(replace(a100(0), mig_enabled=True), t4(1))))
        xid(folder, 1, IGNORED_XID)  # the program need not wait until there has been no event for a while
        await program.until_said(WITH_MIG)
        await program.kubelet.until_capacity(CUT, 0)

        program.host.use(driver)
        xid(folder, 1, IGNORED_XID)
        await program.kubelet.until_capacity(CUT, 4)
        assert program.process.returncode is None


async def test_a_reload_looks_at_the_cards(folder: Path) -> None:
    """So that MIG is noticed also where events of cards are not watched."""
    async with Program(folder, DP_DISABLE_HEALTHCHECKS="all") as program:
        await started(program, Driver(gpus=(a100(0),)), PROFILES)
        await program.kubelet.until_capacity(CUT, 4)
        program.host.use(Driver(gpus=(replace(a100(0), mig_enabled=True),)))
        program.signal(SIGHUP)

        await program.until_said(WITH_MIG)
        await program.kubelet.until_capacity(CUT, 0)
