"""Whatever the nodes of a class are called, a card is found again by the id under which it is offered."""

import pytest

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.plugin.plan import Advertised, PluginPlan

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
