"""MIG that is switched on and off while `criproxy device-plugin` runs: no file of the driver shows it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP

from criproxy.devices.classes.vgpu_profiles import Quota
from tests.deviceplugin.hosts import a100, part, t4
from tests.deviceplugin.program import Program, policy
from tests.deviceplugin.usage.hosts import Daemon, container_id, grant, put_process
from tests.nvml import Driver, Used

CUT, SMALL = "criproxy.io/cut", "criproxy.io/small"
PROFILES = "{name: cut, class: nvidia, memory: 10Gi}"
MIG_PROFILE = "{name: small, class: nvidia, memory: 4Gi, enforce: [mig, watch]}"
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
    program.policy.write_text(policy(f"{{advertise: [nvidia], profiles: [{profiles}]{more}}}"))
    await program.kubelet.start()
    await program.ready()


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
        assert program.process is not None
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


async def test_the_memory_of_a_mig_device_is_watched(folder: Path) -> None:
    """A container is over the quota of its own device; of cores, nothing is known."""
    gpu = replace(a100(0), mig_enabled=True, mig=(part(0), part(1)))
    used = (Used(card="MIG-1", pid=10, memory_mib=6000), Used(card="MIG-2", pid=20, memory_mib=4000))
    async with Program(folder) as program:
        put_process(program.host.root, 10, "web")
        put_process(program.host.root, 20, "batch")
        quota = Quota(profile="small", memory_mib=4864, cores_percent=14)
        cards = (("web", "MIG-1"), ("batch", "MIG-2"))
        daemon = Daemon(program.control, *(grant(name, card=card, kind="nvidia", quota=quota) for name, card in cards))
        await daemon.start()
        quotas = ", quota: {actions: {memory: stop, cores: stop}}"
        await started(program, Driver(gpus=(gpu,), used=used), MIG_PROFILE, quotas)
        (over,) = await daemon.until("quota-incident")
        (use,) = (await daemon.until_said("device-usage", "'memory_mib': 6000"))["classes"]
        await program.kubelet.until_capacity(SMALL, 2)
        await daemon.stop()

    assert (over["container_id"], over["card"], over["quantity"]) == (container_id("web"), "MIG-1", "memory")
    assert (over["used"], over["allowed"], over["action"]) == (6000, 4864, "stop")
    assert [(each["card"], each["memory_mib"]) for each in use["containers"]] == [("MIG-1", 6000), ("MIG-2", 4000)]
    assert not any("cores_percent" in each for each in (*use["containers"], *use["cards"]))
