"""The resources that are published: ids, health, NUMA nodes, and what containers get with them."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.deviceplugin.resources.resource_builder import Served, build_resources
from criproxy.deviceplugin.server.resource import Prefer, Resource
from criproxy.devices.classes.builtin import BUILTIN, NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import Given, weigh
from criproxy.devices.plugin.plan import NVIDIA_ALONE, Advertised, PluginPlan
from criproxy.host.cards import find_cards
from tests.deviceplugin.hosts import Host, a100, t4
from tests.deviceplugin.nvidia.files import config_of

ALI = DeviceClass(name="ali-npu", resources=("aliyun.com/npu",), id_format="index", per_device=("/dev/npu{index}",))
NPU = "aliyun.com/npu"
GPU = "nvidia.com/gpu"


def npus(*nodes: int) -> Inventory:
    """Cards of `ALI`, each next to one of these NUMA nodes."""
    cards = (Card(number, (f"/dev/npu{number}",), numa_node=node) for number, node in enumerate(nodes))
    return Inventory(stocks={ALI.name: Stock(tuple(cards))})


def gpus(*found: Gpu, shared: tuple[str, ...] = ("/dev/nvidiactl",)) -> Inventory:
    """A machine with these."""
    cards = tuple(Card(gpu.minor, (f"/dev/nvidia{gpu.minor}",), gpu.uuid, gpu.pci_bus_id[4:]) for gpu in found)
    return Inventory(stocks={NVIDIA.name: Stock(cards, shared)}, gpus=found)


def of_ali(*sharing: SharedCards) -> Configuration:
    """A policy file that advertises `ALI`."""
    return Configuration(plan=PluginPlan(advertised=(Advertised(kind=ALI, resource=NPU),), sharing=sharing))


def of_nvidia(text: str = "version: v1", plan: PluginPlan = NVIDIA_ALONE) -> Configuration:
    """NVIDIA's file."""
    return Configuration(plan=plan, nvidia=config_of(text))


def ids(served: Served) -> dict[str, list[str]]:
    """By resource."""
    return {name: list(resource.devices) for name, resource in served.resources.items()}


def ask(resource: Resource, *wanted: str) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Variables, nodes and annotations of a container with these ids."""
    response = resource.allocation(wanted)
    return dict(response.envs), [each.host_path for each in response.devices], dict(response.annotations)


def preference(served: Served, name: str = NPU) -> Prefer:
    """That of a resource, which has one."""
    found = served.resources[name].preference
    assert found is not None
    return found


def test_cards_of_a_generic_class() -> None:
    """Scenario 12: one for each node, with its NUMA node; a container gets the node, no variable, and our word."""
    served = build_resources(of_ali(), npus(0, -1))
    resource = served.resources[NPU]

    assert ids(served) == {NPU: ["npu0", "npu1"]}
    assert [device.numa_node for device in resource.devices.values()] == [0, None]
    assert ask(resource, "npu0") == ({}, ["/dev/npu0"], {"devices.criproxy.io/aliyun.com_npu": "npu0"})
    assert (served.classes, served.warnings) == ({NPU: "ali-npu"}, ())


@pytest.mark.parametrize(
    ("devices", "offered", "warning"),
    [
        (("npu0", "npu9"), "npu0::0 npu0::1 npu1", "the card npu9, which should be shared, does not exist"),
        (("7",), "npu0 npu1", "the card 7, which should be shared, does not exist"),
        (3, "npu0::0 npu0::1 npu1::0 npu1::1", "3 cards should be shared, but only 2 exist"),
        ("all", "npu0::0 npu0::1 npu1::0 npu1::1", ""),
    ],
)
def test_a_shared_card_that_is_not_there(devices: tuple[str, ...] | int, offered: str, warning: str) -> None:
    """While it runs, a card that is gone is a warning and takes nothing else away; at the start it is an error."""
    config = of_ali(SharedCards(name=NPU, devices=devices, replicas=2))

    served = build_resources(config, npus(0, 0))

    assert ids(served) == {NPU: offered.split()}
    assert served.warnings == ((f"{NPU}: {warning}",) if warning else ())
    if warning:
        sentence = r"aliyun\.com/npu cannot be shared as devices\.plugin\.sharing requires"
        with pytest.raises(ResourceError, match=sentence):
            build_resources(config, npus(0, 0), strict=True)


@pytest.mark.parametrize("name", [name for name in BUILTIN if name != NVIDIA.name])
def test_every_class_that_is_built_in(tmp_path: Path, name: str) -> None:
    """Its cards are found, a container gets their nodes, and the boundary knows from our word which cards they are."""
    kind = replace(BUILTIN[name], id_format="minor") if name == "habana" else BUILTIN[name]
    resource = kind.resources[0].replace("*", "x" if kind.resources[0].endswith("/*") else "")
    host = Host(tmp_path)
    for number in (0, 1):
        host.text(kind.per_device[0].replace("{index}", str(number)))
    for path in kind.shared:
        host.text(path.replace("*", "0"))
    stocks = Inventory(stocks=find_cards([kind], host.root))
    shared = (SharedCards(name=resource, replicas=2),)
    config = Configuration(plan=PluginPlan(advertised=(Advertised(kind=kind, resource=resource),), sharing=shared))

    served = build_resources(config, stocks).resources[resource]
    second = next(each for each in served.devices if each.endswith("1::1"))
    envs, nodes, annotations = ask(served, second)
    asked = DeviceRequest(annotations=annotations, envs=(), devices=(), mounts=())
    evidence = weigh([kind], asked, [], stocks.stocks)[kind.name]
    card = stocks.stock(kind).card(kind, evidence.ids[0])

    assert nodes == [*stocks.stock(kind).shared, kind.per_device[0].replace("{index}", "1")]
    assert (evidence.given, evidence.source) == (Given.CARDS, "annotation")
    assert card == stocks.stock(kind).cards[1]
    assert envs == ({kind.visible_env: "1"} if name in ("ascend", "habana") else {})


def test_more_clients_of_mps_than_a_card_serves() -> None:
    """A start or a new file says it in NVIDIA's words; later, only the cards concerned are not offered."""
    text = "flags: {mpsRoot: /run/nvidia/mps}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 17}]}}"
    machine = gpus(t4(0), replace(t4(1), compute_capability=(7, 0)))
    words = "invalid MPS configuration: invalid device maximum allowed replicas exceeded: 17 > 16"

    with pytest.raises(ResourceError, match=f"^{words}$"):
        build_resources(of_nvidia(text), machine, strict=True)
    served = build_resources(of_nvidia(text), machine)
    assert ids(served) == {GPU: [f"GPU-0::{number}" for number in range(17)]}
    assert served.warnings == (f"GPU-1 is not offered: {words}",)
    assert ids(build_resources(of_nvidia(text), gpus(replace(t4(1), compute_capability=(7, 0))))) == {}


def test_a_machine_that_contradicts_nvidias_file() -> None:
    """At the start it is NVIDIA's error; later a warning, and other classes go on."""
    plan = PluginPlan(advertised=(Advertised(kind=NVIDIA), Advertised(kind=ALI, resource=NPU)))
    config = of_nvidia("flags: {migStrategy: single}", plan)
    found = replace(gpus(replace(a100(0), mig_enabled=True)), stocks={**npus(0).stocks, NVIDIA.name: Stock()})

    served = build_resources(config, found)

    assert ids(served) == {NPU: ["npu0"]}
    assert "device 0 has no MIG devices configured" in served.warnings[0]
    with pytest.raises(ResourceError, match="device 0 has no MIG devices configured"):
        build_resources(config, found, strict=True)


def test_a_resource_of_nvidias_file_that_the_class_does_not_have() -> None:
    """It is offered, since the file says so; and criproxy would hide its cards."""
    served = build_resources(of_nvidia('resources: {gpus: [{pattern: "*", name: t4}]}'), gpus(t4(0)))

    assert ids(served) == {"nvidia.com/t4": ["GPU-0"]}
    assert served.warnings == (
        "nvidia.com/t4 is not in resources of the class nvidia, so criproxy hides its cards: add it there",
    )


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        pytest.param("migStrategy: none, failOnInitError: false", [GPU], id="not-needed"),
        pytest.param("migStrategy: none", [], id="needed-by-default"),
        pytest.param("migStrategy: mixed, failOnInitError: false", [], id="mixed"),
        pytest.param("migStrategy: single, failOnInitError: false", [], id="single"),
        pytest.param("deviceDiscoveryStrategy: tegra", [GPU], id="tegra"),
    ],
)
def test_before_nvml_has_answered(flags: str, names: list[str]) -> None:
    """Cards that may turn out to be divided are not offered as a whole; a Tegra chip has no NVML."""
    config = of_nvidia(f"flags: {{{flags}}}")

    assert list(build_resources(config, replace(gpus(t4(0)), pending=True), strict=True).resources) == names


def test_imex_channels() -> None:
    """Those that the file names, as far as the machine has them; one that is required has to be there."""
    text = "imex: {channelIDs: [0], required: true}"
    found = gpus(t4(0))

    resources = build_resources(of_nvidia(text), replace(found, imex_channels=("0", "1"))).resources
    response = resources[GPU].allocation(["GPU-0"])

    assert response.envs["NVIDIA_IMEX_CHANNELS"] == "0"
    with pytest.raises(ResourceError, match="the IMEX channel 0, which imex of NVIDIA's file requires, does not exist"):
        build_resources(of_nvidia(text), found, strict=True)
