"""The section about our own device plugin: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.plugin.plan import HealthCommand, Labels, PluginPlan
from tests.config.files import NPU, devices_of, plan_of, plugin_section, said_of

OTHER = "{name: other, resources: [other.com/a, other.com/b], idFormat: uuid, cdiKinds: [other.com/a]}"
CLASSES = f"nvidia, ascend, {NPU}, {OTHER}"
ADVERTISED = "advertise: [nvidia, ali-npu, {class: ascend, resource: huawei.com/Ascend910}]"


def shared(*items: str) -> str:
    """A section that shares cards so."""
    return f"{ADVERTISED}, sharing: [{', '.join(f'{{{item}}}' for item in items)}]"


def npus(more: str) -> str:
    """An entry for shared cards of the class that the tests add."""
    return f"resource: aliyun.com/npu, {more}"


def test_nothing_said_offers_nothing(tmp_path: Path) -> None:
    """A policy file of before goes on meaning the same."""
    devices = devices_of(tmp_path, "devices: {}")
    assert devices is not None
    assert devices.plan() is None


def test_an_empty_section(tmp_path: Path) -> None:
    """NVIDIA's class, and those that have exactly one resource and nodes."""
    found = plan_of(tmp_path, "", CLASSES)

    offered = [(each.kind.name, each.resource) for each in found.advertised]
    assert offered == [("nvidia", ""), ("ali-npu", "aliyun.com/npu")]
    assert found == PluginPlan(advertised=found.advertised)


def test_all_that_can_be_said(tmp_path: Path) -> None:
    """Times are seconds, and selectors texts."""
    sharing = (
        npus("devices: [0, npu3], replicas: 4, rename: aliyun.com/npu.shared"),
        npus("devices: [1], replicas: 2, failRequestsGreaterThanOne: true"),
        "resource: nvidia.com/gpu, devices: 2, replicas: 3",
    )
    command = "{class: ali-npu, command: [/bin/npu, -a], period: 500ms, timeout: 250ms}"
    rest = (
        "nvidiaConfig: /etc/criproxy/nvidia, register: plugins-registry, labels: {file: /x/y, interval: 1h}, "
        f"health: {{holdDown: 2m, onUnhealthy: stop, commands: [{command}]}}"
    )
    section = shared(*sharing).replace("ali-npu,", "{class: ali-npu, allocation: packed},")

    found = plan_of(tmp_path, f"{section}, {rest}", CLASSES)

    assert [(each.kind.name, each.resource, each.spread) for each in found.advertised] == [
        ("nvidia", "", "distributed"),
        ("ali-npu", "aliyun.com/npu", "packed"),
        ("ascend", "huawei.com/Ascend910", "distributed"),
    ]
    assert found.sharing == (
        SharedCards(name="aliyun.com/npu", devices=("0", "npu3"), replicas=4, rename="aliyun.com/npu.shared"),
        SharedCards(name="aliyun.com/npu", devices=("1",), replicas=2, only_one=True),
        SharedCards(name="nvidia.com/gpu", devices=2, replicas=3),
    )
    assert (found.nvidia_config, found.register) == ("/etc/criproxy/nvidia", "plugins-registry")
    assert (found.hold_down_s, found.on_unhealthy) == (120.0, "stop")
    by_hand = HealthCommand(kind="ali-npu", command=("/bin/npu", "-a"), period_s=0.5, timeout_s=0.25)
    assert (found.health_commands, found.labels) == ((by_hand,), Labels(file="/x/y", interval_s=3600.0))
    nvidia, ali, _ = found.advertised
    assert (found.shared_of(nvidia), found.shared_of(ali)) == (found.sharing[2:], found.sharing[:2])


def test_the_new_name_of_shared_cards_is_one_of_the_class(tmp_path: Path) -> None:
    """The boundary knows it, too, without being told."""
    section = plugin_section(shared(npus("replicas: 2, rename: aliyun.com/npu.shared")), CLASSES)
    devices = devices_of(tmp_path, section)

    assert devices is not None
    kinds = {kind.name: kind for kind in devices.rules().classes}
    assert kinds["ali-npu"].resources == ("aliyun.com/npu", "aliyun.com/npu.shared")


def test_some_cards_each_in_their_way(tmp_path: Path) -> None:
    """Several entries for other cards of a resource are fine, and two that say the same."""
    twice = npus("replicas: 2, devices: [0]")

    assert said_of(tmp_path, shared(twice, npus("replicas: 3, devices: [1, npu2]"), twice), CLASSES) == []


ID = "GPU-" + 56 * "0"
TWO = npus("replicas: 2")
MISTAKES = {
    "no-such-class": (
        "advertise: [ali-npx]",
        "[0]: there is no class 'ali-npx'; did you mean 'ali-npu'?; devices.classes can add one",
    ),
    "twice": ("advertise: [nvidia, nvidia]", "[1]: the class 'nvidia' is listed twice"),
    "pattern": (
        "advertise: [ascend]",
        "the class 'ascend' has huawei.com/Ascend*: add the resource to offer, such as huawei.com/Ascend",
    ),
    "no-resource-of-the-class": (
        "advertise: [{class: ascend, resource: huawei.com/npu}]",
        "[0].resource: huawei.com/npu is not a resource of the class 'ascend', which has huawei.com/Ascend*: add it",
    ),
    "nvidia": (
        "advertise: [{class: nvidia, resource: nvidia.com/gpu}]",
        "[0].resource: leave it out: resources.gpus of NVIDIA's file names the resources",
    ),
    "reserved-domain": (
        "advertise: [{class: ali-npu, resource: kubernetes.io/npu}]",
        "the kubelet accepts no resource 'kubernetes.io/npu' from a plugin",
    ),
    "long-name": (
        f"advertise: [{{class: ali-npu, resource: a.b/{64 * 'x'}}}]",
        "a domain, '/', and a name of at most 63 characters",
    ),
    "a-file-for-nobody": ("advertise: [ali-npu], nvidiaConfig: /n.yaml", "has no effect: advertise has no nvidia"),
    "nobodys-resource": (
        shared("resource: aliyun.com/npx, replicas: 2"),
        "[0].resource: aliyun.com/npx belongs to no class; did you mean 'aliyun.com/npu'?",
    ),
    "not-advertised": (
        f"advertise: [nvidia], sharing: [{{{TWO}}}]",
        "the class 'ali-npu', to which aliyun.com/npu belongs, is not in advertise: add it",
    ),
    "offered-as-another": (
        shared("resource: huawei.com/Ascend310, replicas: 2"),
        "the class 'ascend' is offered as huawei.com/Ascend910, and not as huawei.com/Ascend310",
    ),
    "renamed-to-another-class": (
        shared(f"{TWO}, rename: nvidia.com/gpu"),
        "[0].rename: nvidia.com/gpu belongs to the class 'nvidia': choose a name of 'ali-npu'",
    ),
    "renamed-out-of-nvidia": (
        shared("resource: nvidia.com/gpu, replicas: 2, rename: x.com/gpu"),
        "a resource of NVIDIA's cards must begin with nvidia.com/, unlike x.com/gpu",
    ),
    "renamed-to-itself": (shared(f"{TWO}, rename: aliyun.com/npu"), "[0].rename: is aliyun.com/npu itself: leave it"),
    "two-renamed-to-one": (
        shared(f"{TWO}, rename: x.y/z", "resource: huawei.com/Ascend910, replicas: 2, rename: x.y/z"),
        "[1].rename: x.y/z is also the new name of aliyun.com/npu: choose another one",
    ),
    "all-twice": (
        shared(TWO, npus("replicas: 3")),
        "[1].devices: cards of aliyun.com/npu are also shared by sharing[0], but with different replicas or rename",
    ),
    "a-number-and-a-list": (
        shared(f"{TWO}, devices: [5, 1]", npus("replicas: 3, devices: 2")),
        "card 1 of aliyun.com/npu is also shared by sharing[0]",
    ),
    "two-lists": (
        shared(f"{TWO}, devices: [npu1, npu2]", f"{TWO}, devices: [npu2], rename: aliyun.com/x"),
        "card npu2 of aliyun.com/npu is also shared by sharing[0]",
    ),
    "two-words-on-more-than-one": (
        shared(f"{TWO}, devices: [0]", f"{TWO}, devices: [1], failRequestsGreaterThanOne: true"),
        "[1].failRequestsGreaterThanOne: differs from sharing[0], which also offers aliyun.com/npu",
    ),
    "long-ids": (
        shared(f"resource: nvidia.com/gpu, replicas: 100, devices: [{ID}]"),
        "[0].devices[0]: the ids of its replicas have more than 63 characters, which the kubelet may not accept",
    ),
    "one-replica": (shared(npus("replicas: 1")), "[0].replicas: must be greater than or equal to 2, not 1"),
    "too-many-replicas": (shared(npus("replicas: 20000")), "must be less than or equal to 10000, not 20000"),
    "no-cards": (shared(f"{TWO}, devices: 0"), "must be all, a number of cards, or a list of indexes and ids, not 0"),
    "an-empty-list": (shared(f"{TWO}, devices: []"), "a number of cards, or a list of indexes and ids, not []"),
    "mistyped": (shared(f"{TWO}, device: all"), "option 'devices.plugin.sharing[0].device'; did you mean 'devices'?"),
    "health-of-nobody": (
        "health: {commands: [{class: ascend, command: [/x]}]}",
        "commands[0].class: the class 'ascend' is not in advertise",
    ),
    "a-program-of-the-path": (
        "health: {commands: [{class: ali-npu, command: [npu]}]}",
        "commands[0].command: must begin with the absolute path of a program, not 'npu'",
    ),
    "longer-than-its-period": (
        "health: {commands: [{class: ali-npu, command: [/x], period: 5s}]}",
        "commands[0].timeout: must not be longer than period, after which the command runs again",
    ),
    "two-commands": (
        "health: {commands: [{class: ali-npu, command: [/x]}, {class: ali-npu, command: [/y]}]}",
        "commands[1].class: the class 'ali-npu' already has a command",
    ),
    "no-unit": ("health: {holdDown: 30}", "30s, 5m or 500ms, not 30; did you mean 30s?"),
    "label-file": ("labels: {file: features.d/x}", "must be the absolute path of a file"),
    "no-interval": ("labels: {interval: 0s}", "a time such as 30s, 5m or 500ms, and not 0"),
    "both": ("register: both", "register: must be 'kubelet' or 'plugins-registry', not 'both'"),
    "relative": ("nvidiaConfig: nvidia.yaml", "nvidiaConfig: must be an absolute path"),
}
"""Sections, and what is said of them."""


@pytest.mark.parametrize(("section", "mistake"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_meant_is_a_mistake(tmp_path: Path, section: str, mistake: str) -> None:
    """With its name, and what would be right."""
    (line,) = said_of(tmp_path, section, CLASSES)

    assert mistake in line
    assert "devices.plugin." in line


@pytest.mark.parametrize(
    ("advertised", "classes", "mistakes"),
    [
        pytest.param(
            "{class: other, resource: other.com/a}",
            CLASSES,
            ["criproxy knows no UUIDs of 'other'", "cards of the class 'other' cannot be found: it needs nodes.perDev"],
            id="no-nodes-and-no-uuids",
        ),
        pytest.param(
            "{class: habana, resource: habana.ai/gaudi}",
            "habana",
            ["the values of HABANA_VISIBLE_DEVICES are known only to the vendor's plugin"],
            id="values-of-the-vendor",
        ),
        pytest.param(
            "{class: habana, resource: habana.ai/gaudi}", "{name: habana, idFormat: minor}", [], id="values-are-known"
        ),
    ],
)
def test_cards_that_cannot_be_found_or_named(
    tmp_path: Path, advertised: str, classes: str, mistakes: list[str]
) -> None:
    """Each mistake is told."""
    lines = said_of(tmp_path, f"advertise: [{advertised}]", classes)

    assert all(mistake in line for mistake, line in zip(mistakes, lines, strict=True))
