"""The section about quotas: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.devices.plugin.plan import QuotaActions, QuotaPlan
from criproxy.devices.usage.values import Quantity
from criproxy.errors import ConfigError
from tests.config.files import write

CLASS = '{name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}'
PROFILES = "[{name: gpu-8g, class: nvidia, memory: 8192Mi}, {name: half, class: ali-npu, memory: 8Gi, count: 2}]"


def _text(quota: str, profiles: str = PROFILES) -> bytes:
    """A policy file with this section."""
    section = f"  plugin:\n    profiles: {profiles}\n    {quota}\n"
    return f"policy: none\ndevices:\n  classes: [nvidia, amd, {CLASS}]\n{section}".encode()


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        pytest.param("", QuotaPlan(), id="nothing-said"),
        pytest.param("quota: {}", QuotaPlan(), id="defaults"),
        pytest.param(
            "quota: {period: 500ms, grace: 1m, samples: 5, overTimePercent: 30, marginMib: 0, coresMarginPercent: 20}",
            QuotaPlan(
                period_s=0.5, grace_s=60.0, samples=5, over_time_percent=30, margin_mib=0, cores_margin_percent=20
            ),
            id="all-numbers",
        ),
        pytest.param("quota: {stopTimeout: 0s}", QuotaPlan(stop_timeout_s=0.0), id="no-time-to-exit"),
        pytest.param("quota: {overTimePercent: 100}", QuotaPlan(over_time_percent=100), id="any-share-of-the-time"),
        pytest.param(
            "quota: {actions: {memory: kill-process}, classes: [{class: ali-npu, actions: {cores: annotate}}]}",
            QuotaPlan(
                actions=QuotaActions(memory="kill-process"),
                by_class={"ali-npu": QuotaActions(memory="kill-process", cores="annotate")},
            ),
            id="a-class-changes-one-action",
        ),
    ],
)
def test_what_the_section_means(tmp_path: Path, text: str, plan: QuotaPlan) -> None:
    """What a class leaves out is as for all classes."""
    devices = load(write(tmp_path / "p.yaml", _text(text)), "any").common.devices
    assert devices is not None
    whole = devices.plan()
    assert whole is not None
    assert whole.quota == plan


def test_actions_by_class_and_quantity(tmp_path: Path) -> None:
    """Each class and quantity has its own action."""
    text = _text("quota: {actions: {cores: stop}, classes: [{class: ali-npu, actions: {memory: annotate}}]}")
    devices = load(write(tmp_path / "p.yaml", text), "any").common.devices
    assert devices is not None
    whole = devices.plan()
    assert whole is not None
    found = {(kind, what): whole.quota.action(kind, what) for kind in ("nvidia", "ali-npu") for what in _QUANTITIES}
    assert found == {
        ("nvidia", "memory"): "stop",
        ("nvidia", "cores"): "stop",
        ("ali-npu", "memory"): "annotate",
        ("ali-npu", "cores"): "stop",
    }


_QUANTITIES: tuple[Quantity, ...] = ("memory", "cores")


@pytest.mark.parametrize(
    ("quota", "place", "sentence"),
    [
        pytest.param("{period: 50ms}", "quota.period", "must be between 100ms and 60s, not 0.05s", id="too-often"),
        pytest.param("{period: 2m}", "quota.period", "must be between 100ms and 60s, not 120s", id="too-seldom"),
        pytest.param("{period: 0s}", "quota.period", "must be a time such as 30s", id="no-period"),
        pytest.param("{grace: 2h}", "quota.grace", "must be at most 1h", id="long-grace"),
        pytest.param("{stopTimeout: 61m}", "quota.stopTimeout", "must be at most 1h", id="long-stop"),
        pytest.param("{samples: 0}", "quota.samples", "greater than or equal to 1", id="no-sample"),
        pytest.param(
            "{overTimePercent: 101}", "quota.overTimePercent", "less than or equal to 100", id="more-than-all"
        ),
        pytest.param("{marginMib: -1}", "quota.marginMib", "greater than or equal to 0", id="negative-margin"),
        pytest.param("{coresMarginPercent: 101}", "quota.coresMarginPercent", "less than or equal to 100", id="margin"),
        pytest.param("{actions: {memory: freeze}}", "quota.actions.memory", "'observe'", id="unknown-action"),
        pytest.param("{actions: {gpu: stop}}", "quota.actions.gpu", "gpu", id="unknown-quantity"),
        pytest.param("{classes: [{class: nvida}]}", "quota.classes[0].class", "did you mean 'nvidia'?", id="class"),
        pytest.param(
            "{classes: [{class: nvidia}, {class: nvidia}]}", "quota.classes[1].class", "is listed twice", id="twice"
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, quota: str, place: str, sentence: str) -> None:
    """Each mistake is named with its place and what would be right."""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path / "p.yaml", _text(f"quota: {quota}")), "any")
    assert sentence in str(caught.value)
    assert f"devices.plugin.{place}" in str(caught.value)


def test_actions_without_a_profile_have_no_effect(tmp_path: Path) -> None:
    """A class whose cards nobody cuts has no quota."""
    text = _text("quota: {classes: [{class: ali-npu}]}", "[{name: gpu-8g, class: nvidia, memory: 8192Mi}]")
    with pytest.raises(ConfigError, match="has no effect: no profile is of the class 'ali-npu'"):
        load(write(tmp_path / "p.yaml", text), "any")
