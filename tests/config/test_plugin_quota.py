"""The section about quotas: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.devices.options.quota_options import NVML
from criproxy.devices.plugin.plan import QuotaActions, QuotaPlan, UsageSource
from tests.config.files import plan_of, said_of

GPU = "{name: gpu-8g, class: nvidia, memory: 8192Mi}"
PROFILES = f"profiles: [{GPU}, {{name: half, class: ali-npu, memory: 8Gi, count: 2}}]"


@pytest.mark.parametrize(
    ("quota", "plan"),
    [
        pytest.param("{}", QuotaPlan(), id="defaults"),
        pytest.param(
            "{period: 500ms, grace: 1m, samples: 5, overTimePercent: 30, marginMib: 0, coresMarginPercent: 20}",
            QuotaPlan(
                period_s=0.5, grace_s=60.0, samples=5, over_time_percent=30, margin_mib=0, cores_margin_percent=20
            ),
            id="all-numbers",
        ),
        pytest.param("{stopTimeout: 0s}", QuotaPlan(stop_timeout_s=0.0), id="no-time-to-exit"),
        pytest.param("{overTimePercent: 100}", QuotaPlan(over_time_percent=100), id="any-share-of-the-time"),
        pytest.param(
            "{actions: {memory: kill-process}, classes: [{class: ali-npu, actions: {cores: annotate}}]}",
            QuotaPlan(
                actions=QuotaActions(memory="kill-process"),
                by_class={"ali-npu": QuotaActions(memory="kill-process", cores="annotate")},
            ),
            id="a-class-changes-one-action",
        ),
    ],
)
def test_what_the_section_means(tmp_path: Path, quota: str, plan: QuotaPlan) -> None:
    """What a class leaves out is as for all classes."""
    assert plan_of(tmp_path, PROFILES).quota == QuotaPlan()
    assert plan_of(tmp_path, f"{PROFILES}, quota: {quota}").quota == plan


@pytest.mark.parametrize(
    ("quota", "sentence"),
    [
        pytest.param("{period: 50ms}", "period: must be between 100ms and 60s, not 0.05s", id="too-often"),
        pytest.param("{period: 2m}", "period: must be between 100ms and 60s, not 120s", id="too-seldom"),
        pytest.param("{period: 0s}", "period: must be a time such as 30s", id="no-period"),
        pytest.param("{grace: 2h}", "grace: must be at most 1h", id="long-grace"),
        pytest.param("{stopTimeout: 61m}", "stopTimeout: must be at most 1h", id="long-stop"),
        pytest.param("{samples: 0}", "samples: must be greater than or equal to 1", id="no-sample"),
        pytest.param("{overTimePercent: 101}", "overTimePercent: must be less than or equal to 100", id="over-all"),
        pytest.param("{marginMib: -1}", "marginMib: must be greater than or equal to 0", id="negative-margin"),
        pytest.param("{coresMarginPercent: 101}", "coresMarginPercent: must be less than or equal to", id="margin"),
        pytest.param("{actions: {memory: freeze}}", "actions.memory: must be 'observe'", id="unknown-action"),
        pytest.param("{actions: {gpu: stop}}", "unknown option 'devices.plugin.quota.actions.gpu'", id="quantity"),
        pytest.param("{classes: [{class: nvida}]}", "did you mean 'nvidia'?", id="class"),
        pytest.param("{classes: [{class: nvidia}, {class: nvidia}]}", "classes[1].class: ", id="twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, quota: str, sentence: str) -> None:
    """Each mistake is named with its place and what would be right."""
    (line,) = said_of(tmp_path, f"{PROFILES}, quota: {quota}")

    assert sentence in line
    assert "devices.plugin.quota." in line


def test_actions_without_a_profile_have_no_effect(tmp_path: Path) -> None:
    """A class whose cards nobody cuts has no quota."""
    (line,) = said_of(tmp_path, f"profiles: [{GPU}], quota: {{classes: [{{class: ali-npu}}]}}")

    assert "has no effect: no profile is of the class 'ali-npu'" in line


# ---------------------------------------------------------------- what reports the use of cards


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
def test_usage_that_cannot_be_meant_is_refused(tmp_path: Path, usage: str, sentence: str) -> None:
    """Each mistake is named with its place and what would be right."""
    assert any(sentence in line for line in said_of(tmp_path, f"usage: [{usage}]"))
