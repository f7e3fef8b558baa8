"""What the device plugin knows of the cards that there are."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.cards.detected_cards import DetectedCard, names_of, nvml_problem
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.plugin.published import NOT_YET
from tests.deviceplugin.hosts import t4

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
