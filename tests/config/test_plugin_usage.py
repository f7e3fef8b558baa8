"""The list of what reports the use of cards: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.devices.options.quota_options import NVML
from criproxy.devices.plugin.plan import PluginPlan, UsageSource
from criproxy.errors import ConfigError
from tests.config.files import write

CLASS = '{name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}'
PROFILE = "{name: gpu-8g, class: nvidia, memory: 8Gi}"
OF_NPU = "{name: npu-1g, class: ali-npu, memory: 1Gi, count: 2}"
OF_HAMI = "{name: gpu-8g, class: nvidia, memory: 8Gi, enforce: [hami-core]}"


def _plan(folder: Path, plugin: str) -> PluginPlan:
    """Return what a policy file with this section of the device plugin says."""
    text = f"policy: none\ndevices:\n  classes: [nvidia, {CLASS}]\n  plugin: {{{plugin}}}\n"
    devices = load(write(folder / "p.yaml", text.encode()), "any").common.devices
    assert devices is not None
    plan = devices.plan()
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("plugin", "usage"),
    [
        pytest.param("", (), id="no-profiles"),
        pytest.param(f"profiles: [{PROFILE}]", (NVML,), id="nvidia-is-cut"),
        pytest.param("profiles: [{name: g, class: ali-npu, memory: 1Gi, count: 2}]", (), id="only-others-are-cut"),
        pytest.param(f"profiles: [{PROFILE}], usage: []", (), id="nothing-is-wanted"),
        pytest.param(
            f"profiles: [{PROFILE}], usage: [{{class: ali-npu, from: file, file: /run/n.json}}]",
            (UsageSource(kind="ali-npu", source="file", file="/run/n.json"), NVML),
            id="another-class",
        ),
        pytest.param(
            "usage: [{class: nvidia, from: file, file: /run/n.json}, "
            "{class: ali-npu, from: command, command: [/bin/npu, -x]}]",
            (
                UsageSource(kind="nvidia", source="file", file="/run/n.json"),
                UsageSource(kind="ali-npu", source="command", command=("/bin/npu", "-x")),
            ),
            id="given",
        ),
        pytest.param("usage: [{class: nvidia, from: nvml}]", (NVML,), id="without-profiles"),
    ],
)
def test_what_reports_use(tmp_path: Path, plugin: str, usage: tuple[UsageSource, ...]) -> None:
    """By default it is NVIDIA's driver for NVIDIA's cards, where they are cut."""
    assert _plan(tmp_path, plugin).usage == usage


@pytest.mark.parametrize(
    ("usage", "sentence"),
    [
        pytest.param(
            "{class: nvida, from: nvml}", "usage[0].class: the class 'nvida' is not in advertise; did", id="class"
        ),
        pytest.param(
            "{class: nvidia, from: nvml}, {class: nvidia, from: file, file: /x}",
            "usage[1].class: the class 'nvidia' is listed twice",
            id="twice",
        ),
        pytest.param("{class: ali-npu, from: nvml}", "usage[0].from: nvml knows only NVIDIA's cards", id="nvml"),
        pytest.param("{class: ali-npu, from: command}", "usage[0]: from: command needs command", id="no-command"),
        pytest.param("{class: ali-npu, from: file}", "usage[0]: from: file needs file", id="no-file"),
        pytest.param(
            "{class: ali-npu, from: file, file: /x, command: [/y]}",
            "usage[0].command: has no effect with from: file",
            id="both",
        ),
        pytest.param(
            "{class: ali-npu, from: command, command: [npu]}",
            "usage[0].command: must begin with the absolute path of a program, not 'npu'",
            id="relative",
        ),
        pytest.param("{class: ali-npu, from: file, file: x}", "must be an absolute path", id="relative-file"),
        pytest.param("{class: ali-npu, from: dcgm}", "usage[0].from", id="unknown-source"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, usage: str, sentence: str) -> None:
    """Each mistake is named with its place and what would be right."""
    with pytest.raises(ConfigError) as caught:
        _plan(tmp_path, f"usage: [{usage}]")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("plugin", "classes"),
    [
        pytest.param(f"profiles: [{PROFILE}]", [], id="nvml-by-default"),
        pytest.param(f"profiles: [{OF_NPU}]", ["ali-npu"], id="nothing-reports"),
        pytest.param(f"profiles: [{OF_HAMI}], usage: []", [], id="not-to-be-watched"),
    ],
)
def test_classes_that_nothing_reports_are_known(tmp_path: Path, plugin: str, classes: list[str]) -> None:
    """Their quota has no effect: the device plugin says so."""
    assert list(_plan(tmp_path, plugin).unwatched) == classes
