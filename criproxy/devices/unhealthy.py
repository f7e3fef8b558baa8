"""Whether a container may be created although its card is unhealthy.

With ``onUnhealthy: stop`` it may not: it would start work on the card that it was just stopped for, and be stopped
again. The kubelet shows the sentence and tries again, so the container is there soon after the card is healthy.
"""

from collections.abc import Iterable

from criproxy.devices.cards import Stock, Stocks
from criproxy.devices.classes import DeviceClass
from criproxy.devices.holdings import Facts, uses
from criproxy.devices.may_see import Refusal
from criproxy.errors import StatusCode
from criproxy.model.incident import Action, Incident
from criproxy.model.notices import timestamp

_NOTHING = Stock()


def unhealthy_card(
    incidents: Iterable[Incident], classes: Iterable[DeviceClass], facts: Facts, stocks: Stocks
) -> Incident | None:
    """The first incident because of which a container is not created.

    Args:
        incidents: of the node.
        classes: those of the rules in force.
        facts: what the container was given, as `holdings.facts_of` has it.
        stocks: the machine's cards.
    """
    kinds = {kind.name: kind for kind in classes}
    for incident in incidents:
        kind = kinds.get(incident.device_class)
        if kind is None or incident.ended or incident.excess or incident.action is not Action.STOP:
            continue
        if uses(facts, kind, stocks.get(kind.name, _NOTHING), incident.card):
            return incident
    return None


def refusal(incident: Incident) -> Refusal:
    """What the kubelet is told."""
    since = timestamp(incident.since_s)
    text = f"its card {incident.card} ({incident.device_class}) has been unhealthy since {since} ({incident.reason})"
    advice = "criproxy creates it once the card is healthy again (onUnhealthy: stop)"
    return Refusal(StatusCode.FAILED_PRECONDITION, f"{text}; {advice}")
