"""What happened on the node, from the history: what `criproxy events` shows. docs/status.md documents the keys."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from criproxy.api.views.situation import argument
from criproxy.errors import UsageError
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.text.notices import Values, timestamp

LEFT_OUT = (Kind.ASKED, Kind.CONSIDERED, Kind.DEVICES)
"""Kinds of records that say what came in and what was compared; `criproxy explain` tells it with its container."""
MAX_EVENTS = 1_000
"""So many one answer has at most: the newest."""
LAST_EVENT = (1 << 63) - 1
"""No number of an event is larger."""


def read(arguments: Mapping[str, Any]) -> tuple[float, int, str]:
    """Return the arguments of the command.

    Returns:
        ``since_s``: events from before are left out; in seconds since the epoch. ``after``: the number of the last
        event that is known already; 0: none. ``namespace``: only events of its containers; empty: all.

    Raises:
        UsageError: one is of another type, or too large.
    """
    since_s, after = argument(arguments, "since_s", 0.0), argument(arguments, "after", 0)
    if not 0 <= after <= LAST_EVENT:
        raise UsageError("after: must be the number of an event, such as the 'last' of an earlier answer")
    return since_s, after, argument(arguments, "namespace", "")


def to_values(records: Sequence[Record], last: int, since_s: float = 0.0, node: Node | None = None) -> Values:
    """What is to be said of *records*, oldest first.

    Args:
        records: the newest of the history, without those of a kind of `LEFT_OUT`.
        last: the number of the last record in the history, to ask for those after it.
        since_s: those from before are left out; in seconds since the epoch.
        node: has the pods; None: their UIDs are left empty.
    """
    chosen = sorted((record for record in records if record.at_s >= since_s), key=lambda record: record.at_s)
    listed = chosen[-MAX_EVENTS:]
    full = len(records) >= MAX_EVENTS and len(chosen) == len(records)
    uids = defaultdict[str, set[str]](set)
    for pod in node.pods.values() if node and listed else ():
        uids[pod.title].add(pod.uid)
    return {
        "events": [_event(record, _pod_uid(record, node, uids) if node else "") for record in listed],
        "last": last,
        "has_more": full,
    }


def _pod_uid(record: Record, node: Node, by_title: Mapping[str, set[str]]) -> str:
    """Return the UID of the pod that *record* is about; empty if it is gone, or its name is that of several."""
    if container := node.containers.get(record.key):
        pod = node.pods.get(container.pod)
        return pod.uid if pod else ""
    uids = by_title.get(record.container.rpartition("/")[0], set())
    return next(iter(uids)) if len(uids) == 1 else ""


def _event(record: Record, pod_uid: str) -> Values:
    known_id = record.key if record.key != record.life else ""
    return {"container": record.container, "pod_uid": pod_uid, "id": known_id, **event(record)}


def event(record: Record) -> Values:
    """Return one record of the history, without what it is about."""
    return {
        "time": timestamp(record.at_s),
        "kind": record.kind.value,
        "sentences": list(record.sentences),
        "facts": dict(record.facts),
    }
