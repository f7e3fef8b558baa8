"""Cards that fail and recover, as the kubelet, the daemon and the log of `criproxy device-plugin` see them."""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP, SIGTERM

import pytest

from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.fake_nvml import FakeNvml
from tests.deviceplugin.hosts import a100, t4
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.news import PATIENT_S
from tests.deviceplugin.program import NPU, Program, policy
from tests.nvml import Driver

GPU = "nvidia.com/gpu"
FIRST, SECOND = "GPU-491287c9-bc95-b926-a488-9503064e72a0", "GPU-491287ca-bc95-b926-a488-9503064e72a1"
"""The cards of p100.txt."""
Nvml = Callable[[str], FakeNvml]


async def gpus(program: Program, nvml: FakeNvml, section: str) -> None:
    """Start a program with two GPUs whose events are watched, each in two replicas."""
    await program.begin(section)
    await program.kubelet.until_capacity(GPU, 4)
    await nvml.until_watched(2)


async def test_an_xid_error_makes_all_replicas_unhealthy(folder: Path, fake_nvml: Nvml) -> None:
    """They are healthy again after the hold-down, and the daemon is told of both, whenever it comes."""
    sharing = "sharing: [{resource: nvidia.com/gpu, replicas: 2}]"
    section = f"{{advertise: [nvidia], {sharing}, health: {{holdDown: %s, onUnhealthy: stop}}}}"
    nvml = fake_nvml("p100")
    async with Program(folder, driver=nvml) as program:
        await gpus(program, nvml, section % "1h")
        nvml.xid(1, 31)  # one that a program causes by itself
        nvml.xid(1, 79)
        await program.kubelet.until_capacity(GPU, 4, healthy=2)

        assert program.kubelet.unhealthy(GPU) == {f"{SECOND}::0", f"{SECOND}::1"}
        await program.until_said("a card is unhealthy")
        assert program.said("a card is unhealthy") == 1
        daemon = await program.with_daemon()
        (incident,) = await daemon.until_said("device-incident", 1)
        assert incident["device_class"] == "nvidia"
        assert incident["card"] == SECOND
        assert (incident["healthy"], incident["reason"], incident["action"]) == (False, "XID 79", "stop")
        program.policy.write_text(policy(section % "10ms"))  # only now, however long all this has taken
        await program.kubelet.until_capacity(GPU, 4)
        assert (await daemon.until_said("device-incident", 2))[1]["healthy"]


async def test_a_health_command_judges_cards(folder: Path) -> None:
    """Cards that it names are unhealthy; where it fails or hangs, all of its class are, until it works again."""
    check = folder / "check"
    _script(check, "echo 'npu1 too hot'; echo 'npu9 unknown'")
    health = f"{{holdDown: 10ms, commands: [{{class: ali-npu, command: [{check}], period: 2s, timeout: 2s}}]}}"
    async with Program(folder) as program:
        await program.begin(f"{{advertise: [ali-npu], health: {health}}}", "/dev/npu0", "/dev/npu1", "/dev/npu2")
        await program.kubelet.until_capacity(NPU, 3, healthy=2)
        assert program.kubelet.unhealthy(NPU) == {"npu1"}
        await program.until_said("too hot")

        _script(check, "exit 3")
        await program.kubelet.until_capacity(NPU, 3, healthy=0)
        await program.until_said("exited with exit status 3")
        _script(check, "")
        await program.kubelet.until_capacity(NPU, 3)


async def test_no_card_is_healthy_before_its_health_command_has_answered(folder: Path) -> None:
    """Also after a restart, and a new one: the command runs for it at once, whatever its period."""
    check = folder / "check"
    os.mkfifo(folder / "answer")
    _script(check, f"cat {folder}/answer")
    health = f"{{commands: [{{class: ali-npu, command: [{check}], period: 1h, timeout: 10m}}]}}"
    async with Program(folder) as program:
        program.policy.write_text(policy(f"{{advertise: [ali-npu], health: {health}}}"))
        for number in range(2):
            program.host.plug(f"/dev/npu{number}")
        await program.kubelet.start()
        for _ in range(2):
            program.told.clear()
            await program.ready()
            await program.kubelet.until_capacity(NPU, 2, healthy=0)
            await asyncio.to_thread((folder / "answer").write_text, "npu1 bad\n")
            await program.kubelet.until_capacity(NPU, 2, healthy=1)
            assert program.kubelet.healthy(NPU) == {"npu0"}
            program.signal(SIGTERM)
            await program.ended()
            await program.kubelet.until(lambda: program.kubelet.capacity(NPU)[1] == 0)

        program.told.clear()
        await program.ready()
        await asyncio.to_thread((folder / "answer").write_text, "")
        await program.kubelet.until_capacity(NPU, 2)
        program.host.plug("/dev/npu2")
        await program.kubelet.until_capacity(NPU, 3, healthy=2)
        await asyncio.to_thread((folder / "answer").write_text, "")
        await program.kubelet.until_capacity(NPU, 3)


async def test_what_a_health_command_leaves_behind_ends_with_it(folder: Path) -> None:
    """Also where it has left its group, its session and its parent; and the command counts as it ended."""
    check = folder / "check"
    _script(check, f"(setsid sleep 1000 & echo $! >> {folder}/pids); echo npu1 hot")
    health = f"{{commands: [{{class: ali-npu, command: [{check}], period: 1h, timeout: 10m}}]}}"
    async with Program(folder) as program:
        await program.begin(f"{{advertise: [ali-npu], health: {health}}}", "/dev/npu0", "/dev/npu1")
        await program.kubelet.until_capacity(NPU, 2, healthy=1)

        (pid,) = map(int, (folder / "pids").read_text().split())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _script(file: Path, text: str) -> None:
    """Put a program in place of the one that is there."""
    new = file.with_suffix(".new")
    new.write_text(f"#!/bin/sh\n{text}\n")
    new.chmod(0o755)
    new.rename(file)


async def admit_asking(program: Program, daemon: Daemon, pod: Pod) -> None:
    """Give a pod a card, again until the daemon was asked: on a stalled machine, the plugin does not wait for it."""
    before = len(daemon.said("free-cpus"))
    async with asyncio.timeout(PATIENT_S):
        assert await program.kubelet.admit(pod, {NPU: 1})
        while len(daemon.said("free-cpus")) == before:
            program.kubelet.remove(pod)
            assert await program.kubelet.admit(pod, {NPU: 1})


async def test_the_daemon_is_asked_for_free_cpus(program: Program) -> None:
    """A pod gets a card without the daemon, with its answer, and while it gives none."""
    for number in range(4):
        program.host.plug(f"/dev/npu{number}", f"0000:1{number}:00.0", numa_node=number // 2)
    await program.begin("{advertise: [ali-npu]}")
    await program.kubelet.until_capacity(NPU, 4)

    assert (await program.kubelet.admit(Pod("one"), {NPU: 1}))[NPU].ids == ("npu0",)
    daemon = await program.with_daemon(free_cpus={"free_milli": {"0": 250, "1": 8000}})
    await admit_asking(program, daemon, Pod("two"))
    daemon.hangs = ["free-cpus"]
    await admit_asking(program, daemon, Pod("three"))


async def test_nvml_that_hangs_holds_up_neither_start_nor_end(folder: Path) -> None:
    """SIGTERM ends the program while it still waits for NVML."""
    async with Program(folder, driver=Driver(hangs=True)) as program:
        program.policy.write_text(policy("{advertise: [nvidia, ali-npu]}"))
        await program.kubelet.start()
        await program.start()
        await program.until(lambda: "STATUS=looking for cards" in program.told)
        program.process.terminate()

        assert await program.ended() == 0
        assert program.said("stopped")


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


async def test_a_node_that_vanishes_right_after_a_reload(folder: Path) -> None:
    """The card of a class that is offered from now on had it, though only the reload itself has seen it."""
    async with Program(folder, driver=Driver(gpus=(t4(0), t4(1)))) as program:
        await program.begin("{advertise: [ali-npu]}", "/dev/npu0")
        program.policy.write_text(policy("{advertise: [ali-npu, nvidia]}"))
        await program.until_said("configuration reloaded")
        program.host.unplug("/dev/nvidia0")
        await program.kubelet.until_capacity(GPU, 2, healthy=1)
        assert program.kubelet.unhealthy(GPU) == {"GPU-0"}
