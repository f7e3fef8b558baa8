"""Whatever is shared, and whatever cards there are: each is offered once, and found again by its id."""

from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.devices.classes.cards import Card, Stock, card_id
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SharedCards, card_of, is_replica
from criproxy.devices.plugin.plan import Advertised, PluginPlan

NPU = "aliyun.com/npu"
NAMES = st.sampled_from(["/dev/npu{index}", "/dev/x_y{index}", "/dev/{index}", "/dev/a/{index}/ctl", "/dev/d{index}z"])
KINDS = st.builds(
    lambda path: DeviceClass(name="ali-npu", resources=("aliyun.com/npu*",), id_format="index", per_device=(path,)),
    NAMES,
)
NUMBERS = st.sets(st.integers(0, 12), max_size=8)
SELECTORS = st.one_of(
    st.just("all"),
    st.integers(1, 9),
    st.lists(st.integers(0, 12).map(str), min_size=1, max_size=4).map(tuple),
)
ENTRIES = st.lists(
    st.builds(
        SharedCards,
        name=st.just(NPU),
        replicas=st.integers(2, 5),
        devices=SELECTORS,
        rename=st.sampled_from(["", f"{NPU}.shared"]),
    ),
    max_size=3,
)


def cards(kind: DeviceClass, numbers: set[int]) -> Stock:
    """Cards with these numbers."""
    return Stock(tuple(Card(number, (kind.per_device[0].format(index=number),)) for number in sorted(numbers)))


@given(KINDS, NUMBERS, ENTRIES)
def test_no_card_is_offered_whole_and_shared(kind: DeviceClass, numbers: set[int], entries: list[SharedCards]) -> None:
    """Every card is offered: whole by one id, or shared by replicas; a container gets its nodes and no others."""
    stock = cards(kind, numbers)
    plan = PluginPlan(advertised=(Advertised(kind=kind, resource=NPU),), sharing=tuple(entries))

    served = build_resources(Configuration(plan=plan), Inventory(stocks={kind.name: stock}))

    ids = [each for resource in served.resources.values() for each in resource.devices]
    whole = {each for each in ids if not is_replica(each)}
    shared = {card_of(each) for each in ids if is_replica(each)}
    assert whole.isdisjoint(shared)
    assert whole | shared == {card_id(kind, card) for card in stock.cards}
    for resource in served.resources.values():
        for each in resource.devices:
            response = resource.allocation([each])
            assert [node.host_path for node in response.devices] == list(_found(kind, stock, each).nodes)


def _found(kind: DeviceClass, stock: Stock, id: str) -> Card:
    """The card that the boundary takes an id for."""
    (physical,) = kind.physical([id])
    card = stock.card(kind, physical)
    assert card is not None
    return card


@given(KINDS, NUMBERS, NUMBERS)
def test_ids_stay(kind: DeviceClass, before: set[int], after: set[int]) -> None:
    """A card has the same id whichever other cards there are."""
    ids = [{card.number: card_id(kind, card) for card in cards(kind, each).cards} for each in (before, after)]

    assert all(ids[0][number] == ids[1][number] for number in before & after)
