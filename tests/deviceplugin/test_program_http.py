"""Metrics and health of `criproxy device-plugin`."""

import re
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from criproxy.deviceplugin.metrics import PluginMetrics, Sample
from tests.conftest import ROOT
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.program import NPU, Program, policy

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
    text = PluginMetrics(Sample).render("")[0].decode()
    served = {
        family.name + ("_total" if family.type == "counter" else "") for family in text_string_to_metric_families(text)
    }
    ours = {name for name in served if name.startswith("criproxy_device_plugin_")}

    assert len(ours) > 15
    section = PAGE.partition("## The device plugin")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(criproxy_device_plugin_\w+)", section)) == ours
