"""What the daemon is told of all that is offered."""

from dataclasses import replace

from criproxy.deviceplugin.cards.detected_cards import cards_of
from criproxy.deviceplugin.daemon_client.reports import published
from criproxy.deviceplugin.health.cards_health import CardsHealth
from criproxy.deviceplugin.health.health import xid_event
from criproxy.deviceplugin.resources.resource_builder import build_resources
from tests.deviceplugin.hosts import a100, part
from tests.deviceplugin.resources.test_resource_builder import gpus, of_nvidia
from tests.node.world import RecordingLog


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
