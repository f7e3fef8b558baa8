"""The section about quotas: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.devices.plugin.plan import QuotaActions, QuotaPlan
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
