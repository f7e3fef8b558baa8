"""What numbers and counts in the files mean while cards come and go."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.cards.card_offers import Configuration, Pins
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SharedCards, card_of, is_replica
from criproxy.devices.plugin.plan import NVIDIA_ALONE, Advertised, PluginPlan
from tests.deviceplugin.hosts import a100, part, t4
from tests.deviceplugin.nvidia.files import config_of
from tests.deviceplugin.resources.test_resource_builder import gpus, npus, of_ali

FILE = "sharing: {timeSlicing: {resources: [{name: nvidia.com/%s, replicas: 2, devices: %s}]}}"


def shared(config: Configuration, found: Inventory, pins: Pins | None) -> tuple[str, str]:
    """The cards that are shared, and those that are offered whole."""
    ids = [
        each for resource in build_resources(config, found, pins=pins).resources.values() for each in resource.devices
    ]
    replicas = dict.fromkeys(card_of(each) for each in ids if is_replica(each))
    return " ".join(replicas), " ".join(each for each in ids if not is_replica(each))


def machine(*names: int) -> Inventory:
    """``GPU-0`` and so on, of which NVML numbers those that are there."""
    return gpus(*(replace(t4(name), index=index) for index, name in enumerate(names)))


def divided(*names: int) -> Inventory:
    """The same, each divided into ``MIG-10`` and ``MIG-11`` for ``GPU-1``."""
    found = [replace(a100(name), index=index, mig_enabled=True) for index, name in enumerate(names)]
    parts = [(replace(part(0), uuid=f"MIG-{name}0"), replace(part(1), uuid=f"MIG-{name}1")) for name in names]
    return gpus(*(replace(gpu, mig=mig) for gpu, mig in zip(found, parts, strict=True)))


@pytest.mark.parametrize(
    ("devices", "before", "after", "expected"),
    [
        pytest.param("[0]", (0, 1, 2), (1, 2), ("", "GPU-1 GPU-2"), id="index-gone"),
        pytest.param("[1]", (0, 1, 2), (1, 2), ("GPU-1", "GPU-2"), id="index-moved"),
        pytest.param("[1]", (0, 1, 2), (0, 1, 2), ("GPU-1", "GPU-0 GPU-2"), id="index-stays"),
        pytest.param("[1]", (1, 2), (0, 1, 2), ("GPU-2", "GPU-0 GPU-1"), id="another-comes"),
        pytest.param("2", (0, 1, 2), (1, 2), ("GPU-1", "GPU-2"), id="count"),
        pytest.param("2", (1,), (0, 1, 2), ("GPU-0 GPU-1", "GPU-2"), id="count-that-lacked-one"),
        pytest.param("3", (0, 1), (1,), ("GPU-1", ""), id="count-that-lacks-one"),
        pytest.param("[1]", (0,), (0, 1), ("GPU-1", "GPU-0"), id="comes-later"),
        pytest.param("all", (0, 1), (1, 2), ("GPU-1 GPU-2", ""), id="all"),
    ],
)
def test_a_number_means_the_gpu_that_had_it_first(
    devices: str, before: tuple[int, ...], after: tuple[int, ...], expected: tuple[str, str]
) -> None:
    """NVML's numbers move when a GPU leaves; a container may have the one that gets the number alone."""
    config = Configuration(plan=NVIDIA_ALONE, nvidia=config_of(FILE % ("gpu", devices)))
    pins = Pins()

    shared(config, machine(*before), pins)

    assert shared(config, machine(*after), pins) == expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param("['1:0']", ("MIG-10", "MIG-11"), id="index"),
        pytest.param("3", ("MIG-10", "MIG-11"), id="count"),
        pytest.param("['0:1']", ("", "MIG-10 MIG-11"), id="gone"),
    ],
)
def test_parts_go_with_their_gpu(devices: str, expected: tuple[str, str]) -> None:
    """The number of a MIG device begins with that of its GPU."""
    text = "flags: {migStrategy: mixed}\n" + FILE % ("mig-1g.5gb", devices)
    config, pins = Configuration(plan=NVIDIA_ALONE, nvidia=config_of(text)), Pins()

    shared(config, divided(0, 1), pins)

    assert shared(config, divided(1), pins) == expected


def test_a_gpu_may_be_divided_anew() -> None:
    """Its parts have other ids then, and the same numbers."""
    config = Configuration(
        plan=NVIDIA_ALONE, nvidia=config_of("flags: {migStrategy: mixed}\n" + FILE % ("mig-1g.5gb", "['0:1']"))
    )
    pins, found = Pins(), divided(0)
    shared(config, found, pins)
    again = tuple(replace(each, uuid=f"{each.uuid}x") for each in found.gpus[0].mig)

    assert shared(config, gpus(replace(found.gpus[0], mig=again)), pins) == ("MIG-01x", "MIG-00x")


def test_a_count_of_another_class() -> None:
    """Its cards have numbers of their own, which stay; the count is of those that were there first."""
    config, pins, found = of_ali(SharedCards(name="aliyun.com/npu", devices=2, replicas=2)), Pins(), npus(0, 0, 0)
    assert shared(config, found, pins) == ("npu0 npu1", "npu2")
    left = {name: replace(stock, cards=stock.cards[1:]) for name, stock in found.stocks.items()}

    assert shared(config, replace(found, stocks=left), pins) == ("npu1", "npu2")


LIVES = st.lists(st.sets(st.integers(0, 5)), min_size=2, max_size=6)
DEVICES = st.one_of(
    st.integers(1, 7).map(str), st.lists(st.integers(0, 6), min_size=1, max_size=3).map(str), st.just("all")
)


@given(LIVES, DEVICES)
def test_whatever_comes_and_goes_a_card_stays_what_it_was(lives: Sequence[set[int]], devices: str) -> None:
    """It is shared always or never."""
    config = Configuration(plan=NVIDIA_ALONE, nvidia=config_of(FILE % ("gpu", devices)))
    pins, ways = Pins(), dict[str, bool]()

    for names in lives:
        replicas, whole = shared(config, machine(*sorted(names)), pins)
        now = dict.fromkeys(replicas.split(), True) | dict.fromkeys(whole.split(), False)
        assert set(now) == {f"GPU-{name}" for name in names}
        assert now == {card: ways.setdefault(card, way) for card, way in now.items()}


NPU = "aliyun.com/npu"


@pytest.mark.parametrize(
    "node", ["/dev/npu{index}", "/dev/x_y{index}", "/dev/{index}", "/dev/a/{index}/ctl", "/dev/d{index}z"]
)
def test_a_container_gets_the_nodes_of_its_card(node: str) -> None:
    """Whole or shared, and those of no other."""
    kind = DeviceClass(name="ali-npu", resources=(f"{NPU}*",), id_format="index", per_device=(node,))
    stock = Stock(tuple(Card(number, (node.format(index=number),)) for number in (0, 3, 12)))
    sharing = (SharedCards(name=NPU, replicas=2, devices=("3",)),)
    plan = PluginPlan(advertised=(Advertised(kind=kind, resource=NPU),), sharing=sharing)

    resource = build_resources(Configuration(plan=plan), Inventory(stocks={kind.name: stock})).resources[NPU]

    found = [[given.host_path for given in resource.allocation([each]).devices] for each in resource.devices]
    assert sorted(found) == sorted([node.format(index=number)] for number in (0, 3, 3, 12))
