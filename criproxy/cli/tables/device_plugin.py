"""The lines of `criproxy devices` about our device plugin: what it offers, and the health of its cards."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import NOTE, QUIET, TROUBLE
from criproxy.cli.render.topology_words import count

Values = dict[str, Any]


def state(values: Values) -> Iterator[Text]:
    """Render whether the device plugin runs; nothing if it has never reported."""
    plugin = values.get("device_plugin")  # missing in answers of earlier versions
    if plugin is None:
        return
    if plugin["state"] == "running":
        yield Text(f"device plugin: running (reported at {plugin['reported']})", style=QUIET)
    else:
        text = f"device plugin: not running (last report at {plugin['reported']}); its report may be outdated"
        yield Text(text, style=NOTE)


def advertised(kind: Values) -> Iterator[Text]:
    """Render a line for each resource of a class."""
    for each in kind.get("advertised", ()):
        given = "" if each["given"] is None else f", {each['given']} allocated"
        line = f"  {each['name']}: {count(each['ids'], 'ID')}, {each['healthy']} healthy{given}"
        if each["registered"]:
            yield Text(line)
        else:
            yield Text(f"{line}; the kubelet has not accepted it: {each['problem'] or 'not registered'}", style=NOTE)


def vgpus(values: Values) -> Iterator[Text]:
    """Render a line for each profile."""
    for each in values.get("vgpus", ()):
        if not each.get("offered", True):
            given = sum(each["used_by_card"].values())
            yield Text(f"profile {each['profile']}: {given} allocated, no longer offered")
            continue
        quota = [f"{each['memory_mib']} MiB"] if each["memory_mib"] else []
        quota += [f"{each['cores_percent']} % of the cores"] if each["cores_percent"] else []
        size = f" with {' and '.join(quota)} each" if quota else ""
        by = each.get("enforced_by")  # a daemon or device plugin of an earlier version does not say it
        enforced = f"; enforced by {' and '.join(by)}" if by else ""
        yield Text(f"profile {each['profile']}: {count(each['count'], 'vGPU')}{size}, {each['free']} free{enforced}")
        for method, reason in each.get("not_enforced_by", {}).items():
            yield Text(f"profile {each['profile']} is not enforced by {method}: {reason}", style=NOTE)


def is_known(cards: list[Values]) -> bool:
    """Whether the health of any card is known."""
    return any(card.get("healthy") is not None for card in cards)


def health(card: Values) -> Text:
    """Render the health of a card for a cell."""
    if card.get("healthy") is None:
        return Text("?", style=QUIET)
    if card["healthy"]:
        return Text("healthy")
    since = f" since {card['since'][:19]}Z" if card["since"] else ""
    return Text(f"unhealthy{since}: {card['reason'] or 'no reason given'}", style=TROUBLE)


MOST_PARTS = 8
"""The maximum number of ids that are shown for one container and one card."""


def parts_of(card: Values, held: Values) -> str:
    """Return the ids of a container's replicas or parts of a card; empty for the whole card."""
    ids = [each for each in held.get("ids_of_card", ()) if each not in held["ids"]]
    ids += [each for each in held["ids"] if each in card["parts"]]
    unnamed = sum(share.get("count", 0) - len(share["ids"]) for share in held.get("allocated", ()) if "count" in share)
    more = len(ids[MOST_PARTS:]) + (unnamed if ids and len(held["ids"]) == 1 else 0)
    return "".join(f"{each}, " for each in [*ids[:MOST_PARTS], *([f"{more} more"] if more else [])])


def incidents(values: Values) -> Iterator[Text]:
    """Render unhealthy cards, with the containers that use them."""
    for each in values.get("incidents", ()):
        users = [f"{words.title(one)}{_use(one, values)}" for one in each["containers"]]
        by = f", used by {', '.join(users)}" if users else ", used by no container"
        text = f"{each['class']}: card {each['card']} has been unhealthy since {each['since']}: {each['reason']}"
        yield Text(f"{text} (onUnhealthy: {each['action']}){by}", style=TROUBLE if users else NOTE)


def _use(one: Values, values: Values) -> str:
    """Return what is done about the container *one* in *values*: without a disk, criproxy stops none."""
    stored = all(notice.get("kind") != "store" for notice in values.get("notices", ()))
    known = {
        "stopping": " (being stopped)" if stored else " (is stopped when criproxy can store that)",
        "stopped": " (stopped)",
        "killed": " (the watcher was told to kill a process)",
    }
    return known.get(one["use"], "")


def over_quota(values: Values) -> Iterator[Text]:
    """Render the containers over the quotas of their vGPUs."""
    for each in values.get("over_quota", ()):
        yield Text(f"{words.title(each)} has been {quota_of(each, values)}", style=TROUBLE)


def quota_of(each: Values, values: Values) -> str:
    """Return which quota a container exceeds, by how much, and the action; *values* is the whole answer."""
    unit = "MiB" if each["quantity"] == "memory" else "% of the cores"
    amounts = f"{each['used']} {unit} used, {each['allowed']} {unit} allowed on {each['card']}"
    return f"over its quota since {each['since'][:19]}Z: {amounts} (quota: {each['action']}){_use(each, values)}"
