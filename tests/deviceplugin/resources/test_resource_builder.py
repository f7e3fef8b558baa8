"""The resources that are published: ids, health, NUMA nodes, and what containers get with them."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.configuration.nvidia_file import with_own_sharing
from criproxy.deviceplugin.nvidia.gpus import Gpu, Platform
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.deviceplugin.resources.resource_builder import Served, build_resources
from criproxy.deviceplugin.server.resource import Prefer, Resource
from criproxy.devices.classes.builtin import BUILTIN, NVIDIA
from criproxy.devices.classes.cards import Card, NvLinks, Peers, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.evidence.device_request import DeviceNode, DeviceRequest, InvalidRequest
from criproxy.devices.evidence.evidence import Given, weigh
from criproxy.devices.plugin.plan import NVIDIA_ALONE, Advertised, PluginPlan
from criproxy.devices.plugin.preference import Spread
from criproxy.host.cards import find_cards
from tests.deviceplugin.hosts import Host, a100, t4
from tests.deviceplugin.nvidia.files import config_of

ALI = DeviceClass(name="ali-npu", resources=("aliyun.com/npu",), id_format="index", per_device=("/dev/npu{index}",))
NPU = "aliyun.com/npu"
GPU = "nvidia.com/gpu"
FIVE = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}}"


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


def test_some_cards_shared_and_renamed() -> None:
    """Those that are named have replicas as another resource; the others stay whole. An index and an id name a card."""
    entry = SharedCards(name=NPU, devices=("0", "npu2"), replicas=2, rename=f"{NPU}.shared", only_one=True)

    served = build_resources(of_ali(entry), npus(0, 0, 1))
    shared = served.resources[f"{NPU}.shared"]

    assert ids(served) == {NPU: ["npu1"], f"{NPU}.shared": ["npu0::0", "npu0::1", "npu2::0", "npu2::1"]}
    assert shared.devices["npu2::1"].numa_node == 1
    assert ask(shared, "npu2::1")[1:] == (["/dev/npu2"], {"devices.criproxy.io/aliyun.com_npu.shared": "npu2::1"})
    text = "maximum request size for shared resources is 1; found 2"
    with pytest.raises(
        InvalidRequest, match=f'^invalid allocation request for "{NPU}.shared": invalid request: {text}$'
    ):
        ask(shared, "npu0::0", "npu2::0")


@pytest.mark.parametrize("id", ["npu7", ""])
def test_an_id_that_is_not_offered(id: str) -> None:
    """It is refused, and so is its pod."""
    resource = build_resources(of_ali(), npus(0)).resources[NPU]

    with pytest.raises(
        InvalidRequest, match=rf'invalid allocation request for "aliyun\.com/npu": .*unknown device: {id}$'
    ):
        ask(resource, "npu0", id)


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


def test_a_card_that_does_not_work() -> None:
    """All its replicas are unhealthy, and no others."""
    config = of_ali(SharedCards(name=NPU, devices=1, replicas=2))

    resource = build_resources(config, npus(0, 0), {ALI.name: ["npu0"], "other": ["npu1"]}).resources[NPU]

    assert [(each.id, each.healthy) for each in resource.devices.values()] == [
        ("npu0::0", False),
        ("npu0::1", False),
        ("npu1", True),
    ]


@pytest.mark.parametrize(
    ("free", "chosen"),
    [pytest.param({0: 1000, 1: 9000}, ("npu2", "npu3"), id="room"), pytest.param({}, ("npu0", "npu1"), id="unknown")],
)
def test_cards_on_one_numa_node_are_preferred(free: dict[int, int], chosen: tuple[str, ...]) -> None:
    """Then those on the node with room, then the lowest."""
    prefer = preference(build_resources(of_ali(), npus(0, 0, 1, 1), free_cpus=lambda: free))

    assert prefer(["npu0", "npu1", "npu2", "npu3"], [], 2) == chosen
    assert prefer(["npu1", "npu2", "npu3"], [], 2) == ("npu2", "npu3")
    assert prefer(["npu1", "npu2", "npu3"], ["npu1"], 1) == ("npu1",)


@pytest.mark.parametrize(
    ("spread", "chosen"), [("distributed", ["npu0::0", "npu1::0"]), ("packed", ["npu0::0", "npu0::1"])]
)
def test_replicas_are_spread_as_the_class_says(spread: Spread, chosen: list[str]) -> None:
    """Over cards that are used least, or most."""
    advertised = Advertised(kind=ALI, resource=NPU, spread=spread)
    plan = PluginPlan(advertised=(advertised,), sharing=(SharedCards(name=NPU, replicas=2),))

    served = build_resources(Configuration(plan=plan), npus(0, 0))

    assert sorted(preference(served)(list(served.resources[NPU].devices), [], 2)) == chosen


def test_ten_thousand_ids() -> None:
    """Preference does not look at each two of so many."""
    served = build_resources(of_ali(SharedCards(name=NPU, replicas=1250)), npus(*[0] * 8))
    ids = list(served.resources[NPU].devices)

    assert len(ids) == 10_000
    assert len(preference(served)(ids, [], 8)) == 8


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


def test_a_gpu_that_is_lost() -> None:
    """It is unhealthy, without anybody saying so."""
    found = replace(gpus(t4(0), t4(1)), lost={"GPU-1": "GPU is lost"})

    devices = build_resources(of_nvidia(FIVE), found).resources[GPU].devices

    assert [each.id for each in devices.values() if not each.healthy] == [f"GPU-1::{number}" for number in range(5)]


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


def test_our_words_for_nvidias_cards() -> None:
    """What our section shares has each its own word on containers that ask for several."""
    entries = (
        SharedCards(name=GPU, devices=("0",), replicas=2, rename="nvidia.com/gpu.one", only_one=True),
        SharedCards(name=GPU, devices=("1",), replicas=3),
    )
    plan = replace(NVIDIA_ALONE, sharing=entries)
    config = Configuration(plan=plan, nvidia=with_own_sharing(config_of("version: v1"), plan))

    served = build_resources(config, gpus(t4(0), t4(1), t4(2)))

    assert ids(served) == {
        GPU: ["GPU-1::0", "GPU-1::1", "GPU-1::2", "GPU-2"],
        "nvidia.com/gpu.one": ["GPU-0::0", "GPU-0::1"],
    }
    assert ask(served.resources[GPU], "GPU-1::0", "GPU-1::1")[0] == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    with pytest.raises(InvalidRequest, match="maximum request size for shared resources is 1; found 2"):
        ask(served.resources["nvidia.com/gpu.one"], "GPU-0::0", "GPU-0::1")


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


def test_linked_gpus_are_preferred() -> None:
    """What NVML says of links decides before all else."""
    found = gpus(*(t4(index) for index in range(4)))
    addresses = {card.id: card.pci for card in found.stock(NVIDIA).cards}
    peers = {f"GPU-{one}": Peers(nvlinks=NvLinks({addresses[f"GPU-{other}"]: 2})) for one, other in ((0, 3), (1, 2))}

    prefer = preference(build_resources(of_nvidia(), replace(found, peers=peers)), GPU)

    assert prefer(["GPU-3", "GPU-1", "GPU-0"], [], 2) == ("GPU-0", "GPU-3")
    with pytest.raises(InvalidRequest, match="unable to retrieve list of available devices"):
        prefer(["GPU-9"], [], 1)


@pytest.mark.parametrize(("strategy", "platform"), [("auto", "tegra"), ("tegra", "nvml")])
def test_tegra(strategy: str, platform: Platform) -> None:
    """Its one GPU has no node; the machine or the file says that it is one."""
    config = of_nvidia(f"flags: {{deviceDiscoveryStrategy: {strategy}}}")

    assert ids(build_resources(config, replace(gpus(), platform=platform))) == {GPU: ["tegra"]}


def test_permissions_of_a_class() -> None:
    """A container may do with nodes what the class says."""
    kind = replace(ALI, permissions="r")
    plan = PluginPlan(advertised=(Advertised(kind=kind, resource=NPU),))

    response = build_resources(Configuration(plan=plan), npus(0)).resources[NPU].allocation(["npu0"])

    assert response.devices == (DeviceNode("/dev/npu0", "/dev/npu0", "r"),)
