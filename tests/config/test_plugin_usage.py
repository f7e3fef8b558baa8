"""The list of what reports the use of cards: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.devices.options.quota_options import NVML
from criproxy.devices.plugin.plan import UsageSource
from tests.config.files import plan_of, said_of

PROFILE = "profiles: [{name: gpu-8g, class: nvidia, memory: 8Gi}]"
OF_NPU = "profiles: [{name: npu-1g, class: ali-npu, memory: 1Gi, count: 2}]"
OF_HAMI = "profiles: [{name: gpu-8g, class: nvidia, memory: 8Gi, enforce: [hami-core]}]"
FILE = "{class: ali-npu, from: file, file: /run/n.json}"
COMMAND = "{class: ali-npu, from: command, command: [/bin/npu, -x]}"
OF_FILE = UsageSource(kind="ali-npu", source="file", file="/run/n.json")
OF_COMMAND = UsageSource(kind="ali-npu", source="command", command=("/bin/npu", "-x"))


@pytest.mark.parametrize(
    ("plugin", "usage", "unwatched"),
    [
        pytest.param("", (), [], id="no-profiles"),
        pytest.param(PROFILE, (NVML,), [], id="nvidia-is-cut"),
        pytest.param(OF_NPU, (), ["ali-npu"], id="only-others-are-cut"),
        pytest.param(f"{OF_HAMI}, usage: []", (), [], id="nothing-is-wanted"),
        pytest.param(f"{PROFILE}, usage: [{FILE}]", (OF_FILE, NVML), [], id="another-class"),
        pytest.param(f"usage: [{COMMAND}]", (OF_COMMAND,), [], id="given"),
        pytest.param("usage: [{class: nvidia, from: nvml}]", (NVML,), [], id="without-profiles"),
    ],
)
def test_what_reports_use(tmp_path: Path, plugin: str, usage: tuple[UsageSource, ...], unwatched: list[str]) -> None:
    """By default it is NVIDIA's driver for NVIDIA's cards, where they are cut; quotas of others have no effect then."""
    plan = plan_of(tmp_path, plugin)

    assert (plan.usage, list(plan.unwatched)) == (usage, unwatched)


@pytest.mark.parametrize(
    ("usage", "sentence"),
    [
        pytest.param("{class: nvida, from: nvml}", "[0].class: the class 'nvida' is not in advertise; did", id="class"),
        pytest.param(f"{FILE}, {COMMAND}", "[1].class: the class 'ali-npu' is listed twice", id="twice"),
        pytest.param("{class: ali-npu, from: nvml}", "[0].from: nvml knows only NVIDIA's cards", id="nvml"),
        pytest.param("{class: ali-npu, from: command}", "[0]: from: command needs command", id="no-command"),
        pytest.param("{class: ali-npu, from: file}", "[0]: from: file needs file", id="no-file"),
        pytest.param(
            "{class: ali-npu, from: file, file: /x, command: [/y]}", "[0].command: has no effect with from", id="both"
        ),
        pytest.param(
            "{class: ali-npu, from: command, command: [npu]}", "must begin with the absolute path of a", id="relative"
        ),
        pytest.param("{class: ali-npu, from: file, file: x}", "must be an absolute path", id="relative-file"),
        pytest.param("{class: ali-npu, from: dcgm}", "[0].from", id="unknown-source"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, usage: str, sentence: str) -> None:
    """Each mistake is named with its place and what would be right."""
    assert any(sentence in line for line in said_of(tmp_path, f"usage: [{usage}]"))
