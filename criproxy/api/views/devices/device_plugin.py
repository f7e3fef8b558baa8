"""Notices about the device plugin: resources and classes of which pods can get no card, and unchecked quotas."""

from collections.abc import Iterator, Mapping, Sequence

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.plugin.published import NOT_YET, Advertised, Published, PublishedCard
from criproxy.model.text.bounded import bounded_texts
from criproxy.model.text.notices import Notice, timestamp
from criproxy.model.text.version import difference

MAX_NAMED = 3


def notices_of_plugin(report: Published) -> Iterator[Notice]:
    """Yield problems of the device plugin as a whole, a resource or a class; those of single cards are elsewhere.

    Args:
        report: the last report of a running device plugin.
    """
    if missing := [each for each in report.resources if not each.registered and not each.starting]:
        names = ", ".join(bounded_texts([_text(each) for each in missing], MAX_NAMED))
        yield Notice("not-registered", f"the kubelet has not accepted resources of the device plugin: {names}")
    classes: dict[str, list[PublishedCard]] = {}
    for card in report.cards:
        classes.setdefault(card.device_class, []).append(card)
    for kind, cards in classes.items():
        if not any(card.healthy for card in cards) and any(map(_failed, cards)):
            reasons = ", ".join(bounded_texts(list(dict.fromkeys(card.reason for card in cards)), MAX_NAMED))
            yield Notice("no-healthy-card", f"no card of the class {kind} is healthy, so pods get none: {reasons}")
    if report.refused:
        text = f"the device plugin does not use its present configuration files, but the former ones: {report.refused}"
        yield Notice("device-plugin-config", text)
    if report.nvml:
        yield Notice("nvml", _nvml_text(report))
    if report.unremoved:
        text = "the device plugin cannot remove what containers have left in directories of vGPUs; remove it as root"
        yield Notice("vgpu-directories", f"{text}: {report.unremoved}")


def _nvml_text(report: Published) -> str:
    """Why NVML does not answer, since when, and what is offered meanwhile."""
    at = timestamp(report.nvml_since_s) if report.nvml_since_s is not None else ""
    since = f" since {at}" if at else ""
    kept = "the device plugin offers NVIDIA's cards as NVML described them before"
    if report.nvml_pending:
        offers = any(each.healthy for each in report.resources_of(NVIDIA.name))
        offered = "the device plugin offers NVIDIA's cards according to the files of the driver, as whole cards"
        kept = f"until it does, {offered if offers else 'no card of NVIDIA is offered'}"
    if report.nvml != NOT_YET:  # a report of an older version does not say whether there has been an answer
        otherwise = "" if report.nvml_pending else ", and otherwise none"
        return f"NVML has not worked{since}: {report.nvml.rstrip('.')}; {kept}{otherwise}"
    if report.nvml_pending:
        since = f" since the device plugin first queried it at {at}" if at else ""
    return f"NVML has not answered{since}: {kept}"


def notices_of_version(report: Published, own: str) -> Iterator[Notice]:
    """Yield a notice if the device plugin and the daemon, whose version is *own*, are of different versions."""
    if compared := difference(own, report.version):
        than = f"{compared} than the daemon ({own})" if compared != "different" else f"and the daemon {own}"
        text = f"the device plugin is version {report.version}, {than}; each ignores fields that it does not know"
        yield Notice("device-plugin-version", text, wrong=False)


def notice_of_silence(reported_s: float | None) -> Notice:
    """A device plugin that does not run, though it should.

    Args:
        reported_s: when it last reported, in seconds since the epoch; None: not since the start of the daemon.
    """
    since = f"since {timestamp(reported_s)}" if reported_s else "since the daemon started"
    lost = "pods get no cards from it, and criproxy does not check any quota"
    text = f"the device plugin has not reported {since}: {lost}; is criproxy device-plugin running?"
    return Notice("device-plugin-silent", text)


def notice_of_absence(kinds: Sequence[str]) -> Notice:
    """A device plugin that has never reported, although the policy file has it offer cards of *kinds*."""
    cards = f"although devices.plugin of the policy file is to offer this node's cards ({', '.join(kinds)})"
    text = f"the device plugin has not reported since the daemon started, {cards}: pods get no cards from it"
    return Notice("device-plugin-silent", f"{text}; is criproxy device-plugin running?")


def notice_of_start(refused: str) -> Notice:
    """A device plugin that has ended at its start, for the reason *refused*."""
    text = "the device plugin does not start, because it cannot use its configuration files, so pods get no cards"
    return Notice("device-plugin-config", f"{text} from it: {refused}")


def notices_of_usage(
    watched: Sequence[str], without_usage: Sequence[str], unknown: Mapping[str, str], *, silent: bool
) -> Iterator[Notice]:
    """Classes whose quotas nobody checks, beside a device plugin that runs.

    Args:
        watched: the classes whose quotas are to be watched.
        without_usage: those of them for which the policy file has no source.
        unknown: by class, why its use is not known.
        silent: whether the watcher reports nothing.
    """
    for kind in watched:
        reason = unknown.get(kind, "the watcher does not report it" if silent else "")
        if kind in without_usage:
            reason = "devices.plugin.usage has no entry for this class"
        if reason:
            yield Notice("usage-unknown", f"criproxy does not check any quota of the class {kind}: {reason}")


def notices_of_cards(unread: Mapping[tuple[str, str], str]) -> Iterator[Notice]:
    """Single cards on which nobody checks the quotas of containers.

    Args:
        unread: by class and card, why its use is not known.
    """
    for kind in dict.fromkeys(kind for kind, _ in unread):
        cards = [f"{card} ({reason})" for (other, card), reason in sorted(unread.items()) if other == kind]
        names = ", ".join(bounded_texts(cards, MAX_NAMED))
        text = f"criproxy does not check any quota on cards of the class {kind} whose use is unknown: {names}"
        yield Notice("usage-unknown", text)


def _failed(card: PublishedCard) -> bool:
    """Whether the card is unhealthy since a known time: others are not ready yet, or in use under a former id."""
    return not card.healthy and card.since_s is not None


def _text(resource: Advertised) -> str:
    return f"{resource.name} ({resource.problem})" if resource.problem else resource.name
