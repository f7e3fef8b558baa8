"""Metrics and health of `criproxy device-plugin`."""

import re
from pathlib import Path
from signal import SIGTERM

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from criproxy.deviceplugin.metrics import Sample, registry
from tests.conftest import ROOT
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.program import NPU, Program, policy
from tests.disks import fill, remount, small_disk
from tests.nvml import Driver

PAGE = (ROOT / "docs/monitoring.md").read_text()


async def ask(folder: Path, path: str) -> tuple[int, str]:
    """Return the status and text of an answer."""
    connector = aiohttp.UnixConnector(str(folder / "http.sock"))
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"http://plugin{path}") as answer:
        return answer.status, await answer.text()


def values(text: str) -> dict[str, float]:
    """Return all values, by name and the values of labels."""
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_is_counted(folder: Path) -> None:
    """Resources, registrations, allocations and the files have their numbers; it is ready when all is registered."""
    async with Program(folder, "--http", f"unix://{folder}/http.sock") as program:
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        program.host.plug("/dev/npu0")
        await program.ready()
        await program.until_said("the resource cannot be served")
        status, text = await ask(folder, "/readyz")
        assert (status, text.split(":")[0]) == (503, NPU)
        await program.kubelet.start()
        await program.until_said("the resource is registered")
        await program.kubelet.until_capacity(NPU, 1)
        await program.kubelet.admit(Pod("one"), {NPU: 1})
        program.policy.write_text("policy: [\n")
        await program.until_said("the configuration cannot be used")

        assert await ask(folder, "/healthz") == (200, "ok\n")
        assert await ask(folder, "/readyz") == (200, "ok\n")
        _, text = await ask(folder, "/metrics")
        found = values(text)
        names = ("advertised", "healthy", "registered", "registrations_total", "allocations_total")
        of_npu = {key.split("[")[0]: value for key, value in found.items() if NPU in key}
        assert [of_npu[f"criproxy_device_plugin_{name}"] for name in names] == [1] * 5
        others = ("config_problem[]", "reloads_total['failed']", "cards['ali-npu', 'healthy']")
        assert [found[f"criproxy_device_plugin_{name}"] for name in others] == [1] * 3


def test_every_metric_is_explained() -> None:
    """Each has its row on the page about monitoring, and each row there has its metric."""
    text = registry(Sample).render("")[0].decode()
    served = {
        family.name + ("_total" if family.type == "counter" else "") for family in text_string_to_metric_families(text)
    }
    ours = {name for name in served if name.startswith("criproxy_device_plugin_")}

    assert len(ours) > 15
    section = PAGE.partition("## The device plugin")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(criproxy_device_plugin_\w+)", section)) == ours


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
