"""The feature file of `criproxy device-plugin`."""

from pathlib import Path
from signal import SIGTERM

import pytest

from tests.deviceplugin.hosts import t4
from tests.deviceplugin.program import Program, policy
from tests.disks import fill, remount, small_disk
from tests.nvml import Driver

FEATURES = "/etc/kubernetes/node-feature-discovery/features.d/criproxy"


def labels(program: Program) -> dict[str, str]:
    """Return what the file says; empty where there is none."""
    file = program.host.root / FEATURES.lstrip("/")
    text = file.read_text() if file.exists() else ""
    return dict(line.split("=") for line in text.splitlines())


def section(more: str = "") -> str:
    """Return a section that shares all cards and writes labels each 50 ms."""
    sharing = "[{resource: nvidia.com/gpu, replicas: 5}, {resource: aliyun.com/npu, replicas: 3}]"
    return f"{{advertise: [nvidia, ali-npu], sharing: {sharing}, labels: {{interval: 50ms}}{more}}}"


@pytest.mark.parametrize("once", [False, True], ids=["in-a-loop", "once"])
async def test_labels_are_written_and_end_with_the_program(folder: Path, once: bool) -> None:
    """They have NVIDIA's names and those of the other class, and stay at the end only where they are written once."""
    environ = {"GFD_ONESHOT": "true", "GFD_NO_TIMESTAMP": "true"} if once else {}
    async with Program(folder, driver=Driver(gpus=(t4(0),)), **environ) as program:
        program.policy.write_text(policy(section()))
        program.host.plug("/dev/npu0")
        program.host.text(f"{FEATURES}x")  # makes the folder
        program.host.text("/sys/class/dmi/id/product_name", "Big Machine\n")
        await program.ready()
        await program.until_said("labels of the node are written")

        found = labels(program)
        wanted = {"product": "Tesla-T4-SHARED", "replicas": "5", "machine": "Big-Machine"}
        assert {name: found[f"nvidia.com/gpu.{name}"] for name in wanted} == wanted
        assert (found["aliyun.com/npu.count"], found["aliyun.com/npu.replicas"]) == ("1", "3")
        assert ("nvidia.com/gfd.timestamp" in found) is not once
        assert program.said("labels of the node are written") == 1, "they are written only where they differ"

        program.signal(SIGTERM)
        assert await program.ended() == 0
        assert bool(labels(program)) is once
        assert [file.name for file in (program.host.root / FEATURES.lstrip("/")).parent.glob(".*")] == []


async def test_a_full_disk_is_told_of_once(program: Program) -> None:
    """The labels that are there stay whole, nothing is left beside them, and they are renewed once there is room."""
    program.policy.write_text(policy(section()))
    program.host.plug("/dev/npu0")
    features = (program.host.root / FEATURES.lstrip("/")).parent
    features.parent.mkdir(parents=True)
    with small_disk(features):
        await program.ready()
        await program.until_said("labels of the node are written")
        before = labels(program)
        fill(features)
        program.host.plug("/dev/npu1")
        await program.until_said("the labels of the node cannot be written")
        (reason,) = (line["reason"] for line in program.lines if "cannot be written" in line["event"])
        assert reason == f"{program.host.root}{FEATURES}: No space left on device"  # the same at each try
        assert labels(program) == before
        assert {file.name for file in features.iterdir()} <= {"criproxy", "filler"}

        remount(features, "nr_inodes=100,size=32768k")
        await program.until_said("labels of the node are written", times=2)
        assert labels(program)["aliyun.com/npu.count"] == "2"
        assert program.said("the labels of the node cannot be written") == 1
        program.signal(SIGTERM)
        assert await program.ended() == 0
