"""The section about our own device plugin: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.plugin.plan import Advertised, HealthCommand, Labels, PluginPlan
from criproxy.errors import ConfigError
from tests.config.files import write

CLASSES = """
  classes:
    - nvidia
    - ascend
    - {name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}
    - {name: other, resources: [other.com/a, other.com/b], idFormat: uuid, cdiKinds: [other.com/a]}
"""
ADVERTISED = "advertise: [nvidia, ali-npu, {class: ascend, resource: huawei.com/Ascend910}]"


def text(plugin: str) -> str:
    """A policy file with these lines of the section."""
    lines = "".join(f"    {line}\n" for line in plugin.splitlines())
    return f"policy: none\ndevices:{CLASSES}  plugin:\n{lines}"


def plan(tmp_path: Path, file: str) -> PluginPlan | None:
    """What a policy file says of the plugin."""
    devices = load(write(tmp_path / "p.yaml", file.encode()), "any").common.devices
    return None if devices is None else devices.plan()


def test_nothing_said_offers_nothing(tmp_path: Path) -> None:
    """A policy file of before goes on meaning the same."""
    assert plan(tmp_path, "policy: none\ndevices: {}") is None


def test_an_empty_section(tmp_path: Path) -> None:
    """NVIDIA's class, and those that have exactly one resource and nodes."""
    found = plan(tmp_path, f"policy: none\ndevices:{CLASSES}  plugin: {{}}")

    assert found is not None
    assert [(each.kind.name, each.resource) for each in found.advertised] == [
        ("nvidia", ""),
        ("ali-npu", "aliyun.com/npu"),
    ]
    assert found == PluginPlan(advertised=found.advertised)


def test_all_that_can_be_said(tmp_path: Path) -> None:
    """Times are seconds, and selectors texts."""
    section = f"""\
{ADVERTISED.replace("ali-npu,", "{class: ali-npu, allocation: packed},")}
nvidiaConfig: /etc/criproxy/nvidia
register: plugins-registry
sharing:
  - {{resource: aliyun.com/npu, devices: [0, npu3], replicas: 4, rename: aliyun.com/npu.shared}}
  - {{resource: aliyun.com/npu, devices: [1], replicas: 2, failRequestsGreaterThanOne: true}}
  - {{resource: nvidia.com/gpu, devices: 2, replicas: 3}}
health:
  holdDown: 2m
  onUnhealthy: stop
  commands: [{{class: ali-npu, command: [/bin/npu, -a], period: 500ms, timeout: 250ms}}]
labels: {{file: /x/y, interval: 1h}}
"""
    found = plan(tmp_path, text(section))

    assert found is not None
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
    assert found.health_commands == (
        HealthCommand(kind="ali-npu", command=("/bin/npu", "-a"), period_s=0.5, timeout_s=0.25),
    )
    assert found.labels == Labels(file="/x/y", interval_s=3600.0)
    nvidia, ali, _ = found.advertised
    assert (found.shared_of(nvidia), found.shared_of(ali)) == (found.sharing[2:], found.sharing[:2])


def test_the_new_name_of_shared_cards_is_one_of_the_class(tmp_path: Path) -> None:
    """The boundary knows it, too, without being told."""
    section = "sharing: [{resource: aliyun.com/npu, replicas: 2, rename: aliyun.com/npu.shared}]"
    devices = load(write(tmp_path / "p.yaml", text(section).encode()), "any").common.devices

    assert devices is not None
    kinds = {kind.name: kind for kind in devices.rules().classes}
    assert kinds["ali-npu"].resources == ("aliyun.com/npu", "aliyun.com/npu.shared")
    assert isinstance((devices.plan() or PluginPlan(advertised=())).advertised[1], Advertised)


def shared(*items: str) -> str:
    """A section that shares cards so."""
    return "\n".join((ADVERTISED, "sharing:", *(f"  - {{{item}}}" for item in items)))


ID = "GPU-" + 56 * "0"


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        pytest.param(
            "advertise: [ali-npx]",
            "9:17: devices.plugin.advertise[0]: there is no class 'ali-npx'; did you mean 'ali-npu'?; "
            "devices.classes can add one",
            id="no-such-class",
        ),
        pytest.param("advertise: [nvidia, nvidia]", "[1]: the class 'nvidia' is listed twice", id="twice"),
        pytest.param(
            "advertise: [ascend]",
            "advertise[0]: the class 'ascend' has huawei.com/Ascend*: add the resource to offer, such as "
            "huawei.com/Ascend",
            id="pattern",
        ),
        pytest.param(
            "advertise: [{class: ascend, resource: huawei.com/npu}]",
            "advertise[0].resource: huawei.com/npu is not a resource of the class 'ascend', which has "
            "huawei.com/Ascend*: add it to resources there",
            id="no-resource-of-the-class",
        ),
        pytest.param(
            "advertise: [{class: nvidia, resource: nvidia.com/gpu}]",
            "advertise[0].resource: leave it out: resources.gpus of NVIDIA's file names the resources",
            id="nvidia",
        ),
        pytest.param(
            "advertise: [{class: ali-npu, resource: kubernetes.io/npu}]",
            "the kubelet accepts no resource 'kubernetes.io/npu' from a plugin",
            id="reserved-domain",
        ),
        pytest.param(
            f"advertise: [{{class: ali-npu, resource: a.b/{64 * 'x'}}}]",
            "a domain, '/', and a name of at most 63 characters",
            id="long-name",
        ),
        pytest.param(
            "advertise: [ali-npu]\nnvidiaConfig: /etc/n.yaml",
            "nvidiaConfig: has no effect: advertise has no nvidia",
            id="a-file-for-nobody",
        ),
        pytest.param(
            shared("resource: aliyun.com/npx, replicas: 2"),
            "11:20: devices.plugin.sharing[0].resource: aliyun.com/npx belongs to no class; did you mean "
            "'aliyun.com/npu'?",
            id="nobodys-resource",
        ),
        pytest.param(
            "advertise: [nvidia]\nsharing: [{resource: aliyun.com/npu, replicas: 2}]",
            "sharing[0].resource: the class 'ali-npu', to which aliyun.com/npu belongs, is not in advertise: add it",
            id="not-advertised",
        ),
        pytest.param(
            shared("resource: huawei.com/Ascend310, replicas: 2"),
            "the class 'ascend' is offered as huawei.com/Ascend910, and not as huawei.com/Ascend310",
            id="offered-as-another",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 2, rename: nvidia.com/gpu"),
            "sharing[0].rename: nvidia.com/gpu belongs to the class 'nvidia': choose a name of 'ali-npu'",
            id="renamed-to-another-class",
        ),
        pytest.param(
            shared("resource: nvidia.com/gpu, replicas: 2, rename: x.com/gpu"),
            "sharing[0].rename: a resource of NVIDIA's cards must begin with nvidia.com/, unlike x.com/gpu",
            id="renamed-out-of-nvidia",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 2, rename: aliyun.com/npu"),
            "sharing[0].rename: is aliyun.com/npu itself: leave it out, or choose another name",
            id="renamed-to-itself",
        ),
        pytest.param(
            shared(
                "resource: aliyun.com/npu, replicas: 2, rename: x.y/z",
                "resource: huawei.com/Ascend910, replicas: 2, rename: x.y/z",
            ),
            "sharing[1].rename: x.y/z is also the new name of aliyun.com/npu: choose another one",
            id="two-renamed-to-one",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 2", "resource: aliyun.com/npu, replicas: 3"),
            "sharing[1].devices: cards of aliyun.com/npu are also shared by sharing[0], but with different replicas "
            "or rename: list different cards in one of them",
            id="all-twice",
        ),
        pytest.param(
            shared(
                "resource: aliyun.com/npu, replicas: 2, devices: [5, 1]",
                "resource: aliyun.com/npu, replicas: 3, devices: 2",
            ),
            "card 1 of aliyun.com/npu is also shared by sharing[0]",
            id="a-number-and-a-list",
        ),
        pytest.param(
            shared(
                "resource: aliyun.com/npu, replicas: 2, devices: [npu1, npu2]",
                "resource: aliyun.com/npu, replicas: 2, devices: [npu2], rename: aliyun.com/x",
            ),
            "card npu2 of aliyun.com/npu is also shared by sharing[0]",
            id="two-lists",
        ),
        pytest.param(
            shared(
                "resource: aliyun.com/npu, replicas: 2, devices: [0]",
                "resource: aliyun.com/npu, replicas: 2, devices: [1], failRequestsGreaterThanOne: true",
            ),
            "sharing[1].failRequestsGreaterThanOne: differs from sharing[0], which also offers aliyun.com/npu",
            id="two-words-on-more-than-one",
        ),
        pytest.param(
            shared(f"resource: nvidia.com/gpu, replicas: 100, devices: [{ID}]"),
            "sharing[0].devices[0]: the ids of its replicas have more than 63 characters, which the kubelet may not "
            "accept: name the card by its index",
            id="long-ids",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 1"),
            "sharing[0].replicas: must be greater than or equal to 2, not 1",
            id="one-replica",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 20000"),
            "sharing[0].replicas: must be less than or equal to 10000, not 20000",
            id="too-many-replicas",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 2, devices: 0"),
            "sharing[0].devices: must be all, a number of cards, or a list of indexes and ids, not 0",
            id="no-cards",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 2, devices: []"),
            "must be all, a number of cards, or a list of indexes and ids, not []",
            id="an-empty-list",
        ),
        pytest.param(
            shared("resource: aliyun.com/npu, replicas: 2, device: all"),
            "unknown option 'devices.plugin.sharing[0].device'; did you mean 'devices'?",
            id="mistyped",
        ),
        pytest.param(
            "health: {commands: [{class: ascend, command: [/x]}]}",
            "health.commands[0].class: the class 'ascend' is not in advertise",
            id="health-of-nobody",
        ),
        pytest.param(
            "health: {commands: [{class: ali-npu, command: [npu]}]}",
            "health.commands[0].command: must begin with the absolute path of a program, not 'npu'",
            id="a-program-of-the-path",
        ),
        pytest.param(
            "health: {commands: [{class: ali-npu, command: [/x], period: 5s}]}",
            "health.commands[0].timeout: must not be longer than period, after which the command runs again",
            id="longer-than-its-period",
        ),
        pytest.param(
            "health: {commands: [{class: ali-npu, command: [/x]}, {class: ali-npu, command: [/y]}]}",
            "health.commands[1].class: the class 'ali-npu' already has a command",
            id="two-commands",
        ),
        pytest.param("health: {holdDown: 30}", "30s, 5m or 500ms, not 30; did you mean 30s?", id="no-unit"),
        pytest.param("labels: {file: features.d/x}", "must be the absolute path of a file", id="label-file"),
        pytest.param("labels: {interval: 0s}", "a time such as 30s, 5m or 500ms, and not 0", id="no-interval"),
        pytest.param("register: both", "register: must be 'kubelet' or 'plugins-registry', not 'both'", id="both"),
        pytest.param("nvidiaConfig: nvidia.yaml", "nvidiaConfig: must be an absolute path", id="relative"),
    ],
)
def test_what_cannot_be_meant_is_a_mistake(tmp_path: Path, section: str, mistake: str) -> None:
    """With its place, and what would be right."""
    with pytest.raises(ConfigError) as error:
        plan(tmp_path, text(section))

    assert mistake in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("section", "mistakes"),
    [
        pytest.param(
            "advertise: [{class: other, resource: other.com/a}]",
            [
                "advertise[0]: the cards of the class 'other' cannot be found: it needs nodes.perDevice",
                "advertise[0]: criproxy knows no UUIDs of 'other': give the class an idFormat of index or minor",
            ],
            id="no-nodes-and-no-uuids",
        )
    ],
)
def test_several_mistakes(tmp_path: Path, section: str, mistakes: list[str]) -> None:
    """Each is told."""
    with pytest.raises(ConfigError) as error:
        plan(tmp_path, text(section))

    assert [any(each in line for line in str(error.value).splitlines()) for each in mistakes] == [True] * len(mistakes)


def test_a_variable_with_values_of_the_vendor(tmp_path: Path) -> None:
    """Its cards cannot be told to the hook, until the class says how."""
    advertise = "[{{class: habana, resource: habana.ai/gaudi}}]"
    file = f"policy: none\ndevices: {{{{classes: [{{}}], plugin: {{{{advertise: {advertise}}}}}}}}}"

    with pytest.raises(ConfigError, match="the values of HABANA_VISIBLE_DEVICES are known only to the vendor's plugin"):
        plan(tmp_path, file.format("habana"))
    assert plan(tmp_path, file.format("{name: habana, idFormat: minor}"))


def test_some_cards_each_in_their_way(tmp_path: Path) -> None:
    """Several entries for other cards of a resource are fine, and two that say the same."""
    section = shared(
        "resource: aliyun.com/npu, replicas: 2, devices: [0]",
        "resource: aliyun.com/npu, replicas: 3, devices: [1, npu2]",
        "resource: aliyun.com/npu, replicas: 2, devices: [0]",
    )

    assert plan(tmp_path, text(section))
