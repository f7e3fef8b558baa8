"""What the device plugin knows of the cards that there are."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.cards.detected_cards import DetectedCard, cards_of, names_of, nvml_problem
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.daemon_client.reports import published
from criproxy.deviceplugin.health.cards_health import CardsHealth
from criproxy.deviceplugin.health.health import xid_event
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.plugin.published import NOT_YET
from tests.deviceplugin.hosts import a100, part, t4
from tests.deviceplugin.resources.test_resource_builder import gpus, of_nvidia
from tests.node.world import RecordingLog

NONE = Inventory(stocks={NVIDIA.name: Stock()})
NODE = Inventory(stocks={NVIDIA.name: Stock((Card(0, ("/dev/nvidia0",)),))})
UNKNOWN, UNANSWERED = "NVML does not list", "is not known yet"


@pytest.mark.parametrize(
    ("inventory", "sentence"),
    [
        pytest.param(replace(NODE, gpus=(t4(0),), driver_version="550"), "", id="nvml-works"),
        pytest.param(NONE, "", id="no-cards"),
        pytest.param(replace(NONE, pending=True, problems=("NVML: Driver Not Loaded",)), "", id="no-driver"),
        pytest.param(replace(NONE, driver_version="550"), "", id="a-driver-without-cards"),
        pytest.param(NODE, UNKNOWN, id="broken-since-the-start"),
        pytest.param(replace(NODE, gpus=(t4(0),)), UNKNOWN, id="gpus-of-proc-alone"),
        pytest.param(replace(NODE, driver_version="550"), UNKNOWN, id="all-gpus-are-lost"),
        pytest.param(replace(NONE, pending=True, problems=(NOT_YET,)), UNANSWERED, id="no-answer-yet"),
        pytest.param(Inventory(), UNANSWERED, id="not-looked-at-yet"),
    ],
)
def test_why_nvml_cannot_be_asked(inventory: Inventory, sentence: str) -> None:
    """There is a reason wherever there are cards of NVIDIA's, or may be."""
    found = nvml_problem(inventory)

    assert sentence in found
    assert bool(found) == bool(sentence)


def test_a_card_has_its_id_among_its_names() -> None:
    """The id of a card is that card's, whatever another one is called."""
    cards = {
        ("npu", "0"): DetectedCard(names=frozenset({"pci-0"})),
        ("npu", "1"): DetectedCard(names=frozenset({"0"}), nodes=frozenset({"/dev/npu1"})),
    }

    assert names_of(cards) == {"npu": {"pci-0": "0", "0": "0", "1": "1", "/dev/npu1": "1"}}


async def test_mig_devices_name_their_gpu() -> None:
    """The daemon, which has no NVML, cannot know otherwise whose parts they are."""
    config = of_nvidia("flags: {migStrategy: mixed}")
    found = gpus(replace(a100(0), mig_enabled=True, mig=(part(0), part(1))))
    health = CardsHealth(lambda: None, lambda *_: None, RecordingLog())
    health.update_cards(cards_of(config.plan, found), ["nvidia"])

    report = published(build_resources(config, found), [], health.known, {}, 10.0)

    assert {card.id: card.parent for card in report.cards} == {"MIG-1": "GPU-0", "MIG-2": "GPU-0"}


async def test_cards_that_have_failed_have_the_action() -> None:
    """The daemon opens incidents of those that it does not know, and of no card that no health command has judged."""
    config, found = of_nvidia(""), gpus(a100(0), a100(1))
    health = CardsHealth(lambda: None, lambda *_: None, RecordingLog())
    health.update_cards(cards_of(config.plan, found), ["nvidia"])
    health.expect_verdicts(["nvidia"])
    health.apply({("nvidia", "GPU-1"): xid_event(79)})
    health.known["nvidia", "GPU-0"].is_unjudged = True

    report = published(build_resources(config, found), [], health.known, {}, 10.0, action="stop")

    assert {card.id: (card.healthy, card.action) for card in report.cards} == {
        "GPU-0": (False, ""),
        "GPU-1": (False, "stop"),
    }
    health.stop()
