"""Creates of containers whose card is unhealthy."""

from dataclasses import replace

import pytest

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.holdings import refusal, unhealthy_card
from criproxy.errors import StatusCode
from criproxy.model.incident import Action, Incident

INCIDENT = Incident(device_class="nvidia", card="GPU-a", since_s=1.5, reason="XID 79", action=Action.STOP)
STOCK = Stock(cards=(Card(0, id="GPU-a", pci="0000:3b:00.0"), Card(1, id="GPU-b", pci="0000:af:00.0")))


@pytest.mark.parametrize(
    ("incident", "facts", "refused"),
    [
        pytest.param(INCIDENT, {"nvidia_ids": "GPU-b,GPU-a"}, True, id="one-of-its-cards"),
        pytest.param(INCIDENT, {"nvidia_ids": "0"}, True, id="the-card-by-its-number"),
        pytest.param(INCIDENT, {"nvidia_ids": "x", "nvidia_pci": "0000:3b:00.0"}, True, id="the-card-by-its-address"),
        pytest.param(INCIDENT, {"nvidia_ids": "GPU-b"}, False, id="another-card"),
        pytest.param(INCIDENT, {}, False, id="no-card"),
        pytest.param(INCIDENT, {"ali-npu_ids": "GPU-a"}, False, id="another-class"),
        pytest.param(replace(INCIDENT, ended=True), {"nvidia_ids": "GPU-a"}, False, id="healthy-again"),
        pytest.param(replace(INCIDENT, action=Action.ANNOTATE), {"nvidia_ids": "GPU-a"}, False, id="annotate"),
        pytest.param(replace(INCIDENT, action=Action.NONE), {"nvidia_ids": "GPU-a"}, False, id="none"),
        pytest.param(replace(INCIDENT, device_class="gone"), {"gone_ids": "GPU-a"}, False, id="a-class-without-rules"),
    ],
)
def test_which_containers_are_not_created(incident: Incident, facts: dict[str, str], *, refused: bool) -> None:
    """Those that have the card of an incident that goes on and that stops containers."""
    found = unhealthy_card([incident], [NVIDIA], facts, {"nvidia": STOCK})

    assert found == (incident if refused else None)


def test_a_card_that_was_not_found() -> None:
    """A card that the machine has lost is known by its id alone."""
    assert unhealthy_card([INCIDENT], [NVIDIA], {"nvidia_ids": "GPU-a"}, {}) is INCIDENT


def test_what_the_kubelet_is_told() -> None:
    """The card, since when it is unhealthy, why, and what ends it."""
    told = refusal(INCIDENT)

    assert told.code is StatusCode.FAILED_PRECONDITION
    assert told.sentence == (
        "its card GPU-a (nvidia) has been unhealthy since 1970-01-01T00:00:01.500Z (XID 79); "
        "criproxy creates it once the card is healthy again (onUnhealthy: stop)"
    )
