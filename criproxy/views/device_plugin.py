"""Notices about the device plugin: cards of which no pod can get one."""

from collections.abc import Iterator

from criproxy.devices.published import Advertised, Published, PublishedCard
from criproxy.model.bounded import bounded_texts
from criproxy.model.notices import Notice

MAX_NAMED = 3


def notices_of_plugin(report: Published) -> Iterator[Notice]:
    """What is wrong with all that a device plugin offers of a resource or a class; single cards have their own words.

    Args:
        report: the last one of a device plugin that runs.
    """
    if missing := [each for each in report.resources if not each.registered]:
        names = ", ".join(bounded_texts([_told(each) for each in missing], MAX_NAMED))
        yield Notice("not-registered", f"the kubelet has not accepted resources of the device plugin: {names}")
    classes: dict[str, list[PublishedCard]] = {}
    for card in report.cards:
        classes.setdefault(card.device_class, []).append(card)
    for kind, cards in classes.items():
        if not any(card.healthy for card in cards) and any(map(_failed, cards)):
            reasons = ", ".join(bounded_texts(list(dict.fromkeys(card.reason for card in cards)), MAX_NAMED))
            yield Notice("no-healthy-card", f"no card of the class {kind} is healthy, so pods get none: {reasons}")


def _failed(card: PublishedCard) -> bool:
    """Whether it has been unhealthy since some moment: others are awaited, or a container has them by a former id."""
    return not card.healthy and card.since_s is not None


def _told(resource: Advertised) -> str:
    return f"{resource.name} ({resource.problem})" if resource.problem else resource.name
