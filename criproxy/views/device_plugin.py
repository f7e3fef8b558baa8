"""Notices about the device plugin: resources and classes of which pods can get no card."""

from collections.abc import Iterator

from criproxy.devices.published import Advertised, Published, PublishedCard
from criproxy.model.bounded import bounded_texts
from criproxy.model.notices import Notice

MAX_NAMED = 3


def notices_of_plugin(report: Published) -> Iterator[Notice]:
    """Yield problems that affect all cards of a resource or a class; problems of single cards are reported elsewhere.

    Args:
        report: the last report of a running device plugin.
    """
    if missing := [each for each in report.resources if not each.registered]:
        names = ", ".join(bounded_texts([_text(each) for each in missing], MAX_NAMED))
        yield Notice("not-registered", f"the kubelet has not accepted resources of the device plugin: {names}")
    classes: dict[str, list[PublishedCard]] = {}
    for card in report.cards:
        classes.setdefault(card.device_class, []).append(card)
    for kind, cards in classes.items():
        if not any(card.healthy for card in cards) and any(map(_failed, cards)):
            reasons = ", ".join(bounded_texts(list(dict.fromkeys(card.reason for card in cards)), MAX_NAMED))
            yield Notice("no-healthy-card", f"no card of the class {kind} is healthy, so pods get none: {reasons}")


def _failed(card: PublishedCard) -> bool:
    """Whether the card is unhealthy since a known time: others are not ready yet, or in use under a former id."""
    return not card.healthy and card.since_s is not None


def _text(resource: Advertised) -> str:
    return f"{resource.name} ({resource.problem})" if resource.problem else resource.name
