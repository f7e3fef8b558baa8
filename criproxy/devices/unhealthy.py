"""Whether a container may be created although its card is unhealthy.

With ``onUnhealthy: stop`` it may not: it would use the card because of which it has just been stopped, and be stopped
again. The kubelet shows the message and retries, so the container is created soon after the card is healthy.
"""

from collections.abc import Iterable

from criproxy.devices.boundary import Refusal
from criproxy.devices.classes.cards import Stock, Stocks
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.holdings import Facts, uses
from criproxy.errors import StatusCode
from criproxy.model.incident import Action, Incident
from criproxy.model.text.notices import timestamp

_NOTHING = Stock()


def unhealthy_card(
    incidents: Iterable[Incident], classes: Iterable[DeviceClass], facts: Facts, stocks: Stocks
) -> Incident | None:
    """Return the first incident because of which a container must not be created.

    Args:
        incidents: the incidents of the node.
        classes: the device classes in use.
        facts: the facts of the container, from `holdings.facts_of`.
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
    """Return the reply to the kubelet."""
    since = timestamp(incident.since_s)
    text = f"its card {incident.card} ({incident.device_class}) has been unhealthy since {since} ({incident.reason})"
    advice = "criproxy creates it once the card is healthy again (onUnhealthy: stop)"
    return Refusal(StatusCode.FAILED_PRECONDITION, f"{text}; {advice}")
