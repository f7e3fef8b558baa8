"""The use of cards as JSON values: for `criproxy usage`. docs/vgpu.md has the keys."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.devices.plugin.published import Published, free_vgpus
from criproxy.devices.usage.history import MINUTE_S, Point, SeriesKey
from criproxy.devices.usage.report_validation import stale_after_s
from criproxy.devices.usage.rows import CardRow, Uses
from criproxy.devices.usage.totals import ClassUse, UsageReport
from criproxy.devices.usage.values import CardUse
from criproxy.model.node import Node
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import ContainerState

Series = Sequence[tuple[SeriesKey, Sequence[Point]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The known use of cards at one moment."""

    report: UsageReport | None = None
    """The last report; None if there was none."""
    reported_s: float = 0.0
    is_current: bool = False
    plugin: Published | None = None
    """The report of the device plugin; None if it does not run."""
    node_cpu_ratio: float | None = None
    node_memory_ratio: float | None = None
    series: Series = field(default_factory=tuple)


def to_values(node: Node, rows: Iterable[CardRow], watched: Watched, given: Mapping[tuple[str, str], int]) -> Values:
    """Return the answer of `criproxy usage`.

    Args:
        node: has the containers.
        rows: the containers with cards.
        watched: the known use.
        given: how many ids are allocated to containers, by class and resource.
    """
    there = sorted(rows, key=lambda row: (row.grant.title, row.container.attempt, row.container.key, row.card))
    uses = Uses(watched.report if watched.is_current else None)
    return {
        "watcher": _watcher(watched),
        "node": {"cpu_ratio": watched.node_cpu_ratio, "memory_ratio": watched.node_memory_ratio},
        "cards": [_card(each, card) for each, card in uses.cards()],
        "containers": [_row(row) for row in there if row.container.state is not ContainerState.EXITED],
        "unknown_containers": _unknown(node, uses),
        "profiles": [*_profiles(watched.plugin, given), *_withdrawn(watched.plugin, there)],
        "history": [_series(key, points, node) for key, points in watched.series],
    }


def _watcher(watched: Watched) -> Values:
    """Return whether the watcher reports, and what it cannot read."""
    report = watched.report
    if report is None:
        return {"state": "none", "reported": None, "stale_after_s": None, "classes": []}
    return {
        "state": "reporting" if watched.is_current else "silent",
        "reported": timestamp(watched.reported_s),
        "stale_after_s": stale_after_s(report),
        "classes": [
            {"class": each.kind, "source": each.source, "problem": each.problem, "unread_cards": dict(each.unread)}
            for each in report.classes
        ],
    }


def _card(use: ClassUse, card: CardUse) -> Values:
    others = [each for each in use.others if each.card == card.card]
    cores = [each.cores_percent for each in others if each.cores_percent is not None]
    return {
        "class": use.kind,
        "id": card.card,
        "memory_mib": card.memory_mib,
        "total_mib": card.total_mib or None,
        "cores_percent": card.cores_percent,
        "not_a_container": {
            "memory_mib": sum(each.memory_mib for each in others),
            "cores_percent": sum(cores) if cores else None,
        },
    }


def _row(row: CardRow) -> Values:
    container, use = row.container, row.use
    return {
        "id": container.key if container.has_id else "",
        "namespace": container.namespace,
        "pod": container.pod_name,
        "container": container.name,
        "state": container.state.value,
        "class": row.grant.kind,
        "card": row.card,
        "resource": row.grant.resource,
        "ids": list(row.grant.ids),
        "profile": row.grant.quota.profile if row.grant.quota else "",
        "memory_mib": use.memory_mib if use else None,
        "memory_granted_mib": row.memory_limit_mib,
        "cores_percent": use.cores_percent if use else None,
        "cores_granted_percent": row.cores_limit_percent,
        "over_since": {quantity.value: timestamp(since_s) for quantity, since_s in row.over_since_s.items()},
        "actions": row.actions,
    }


def _unknown(node: Node, uses: Uses) -> list[Values]:
    """Return unknown containers that use cards, such as those of another runtime."""
    return [
        {"id": use.container_id, "class": kind, "card": use.card, "memory_mib": use.memory_mib}
        for kind, use in uses.all()
        if use.container_id not in node.containers
    ]


def _profiles(plugin: Published | None, given: Mapping[tuple[str, str], int]) -> Iterable[Values]:
    """Yield the number of vGPUs, and of free ones, of each profile."""
    free = free_vgpus(plugin, given) if plugin else {}
    for each in plugin.resources if plugin else ():
        if each.profile:
            yield {
                "class": each.device_class,
                "profile": each.profile,
                "resource": each.name,
                "vgpus": each.ids,
                "healthy": each.healthy,
                "given": given.get((each.device_class, each.name), 0),
                "free": free[each.device_class, each.profile],
                "offered": True,
            }


def _withdrawn(plugin: Published | None, rows: Iterable[CardRow]) -> Iterable[Values]:
    """Profiles that the policy file had, and whose vGPUs containers still have."""
    ids: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        if row.grant.quota and row.container.state is not ContainerState.EXITED:
            key = row.grant.kind, row.grant.quota.profile, row.grant.resource
            ids.setdefault(key, set()).update(row.grant.ids)
    offered = {(each.device_class, each.name) for each in plugin.resources} if plugin else set()
    for (kind, profile, resource), own in sorted(ids.items()):
        if plugin and (kind, resource) not in offered:
            names = {"class": kind, "profile": profile, "resource": resource}
            yield {**names, "vgpus": 0, "healthy": 0, "given": len(own), "free": 0, "offered": False}


def _series(key: SeriesKey, points: Sequence[Point], node: Node) -> Values:
    container = node.containers.get(key.container_id)
    return {
        "class": key.device_class,
        "card": key.card,
        "id": key.container_id,
        "title": container.title if container else "",
        "points": [
            {
                "time": timestamp(point.minute * MINUTE_S),
                "memory_mib": point.memory_mib,
                "cores_percent": point.cores_percent,
            }
            for point in points
        ],
    }
