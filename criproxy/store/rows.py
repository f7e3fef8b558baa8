"""Values of the model ↔ rows of the tables."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import eq
from sys import intern
from typing import Any

from criproxy.model.attributes import STORED
from criproxy.model.controls import NO_CONTROLS, Controls
from criproxy.model.cpuset import format_cpuset, parse_cpuset, parse_interned
from criproxy.model.grant import Applied, CpuQuota, Grant, Kept, alike
from criproxy.model.incident import Incident
from criproxy.model.node import Node, changed_keys
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.text.annotations import kept_of_pod
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.workload import Container, ContainerState, Desired, Missed, Pod, QosClass

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """One table and the map of a `Node` that it holds."""

    name: str
    columns: int
    entries: Callable[[Node], Mapping[str, Any]]
    to_row: Callable[[str, Any], Row]
    from_row: Callable[[Row], Any]
    holds: Callable[[Any], bool] = lambda value: True
    """Whether a value of that map is in this table; there may be another table for the others."""
    same: Callable[[Any, Any], bool] = eq
    """Whether two values of that map have the same row."""

    @property
    def upsert(self) -> str:
        """The statement that writes one row; the names in these are those of `tables`."""
        return f"INSERT OR REPLACE INTO {self.name} VALUES ({', '.join('?' * self.columns)})"  # noqa: S608

    @property
    def delete(self) -> str:
        """The statement that removes one row by its key."""
        return f"DELETE FROM {self.name} WHERE key = ?"  # noqa: S608

    @property
    def select(self) -> str:
        """The statement that reads all rows."""
        return f"SELECT * FROM {self.name}"  # noqa: S608

    def entry(self, row: Row) -> tuple[str, Any]:
        """The key of a row, which is one object wherever it is one, and its value; raises ValueError or TypeError."""
        return intern(row[0]), self.from_row(row)


def changes(table: Table, before: Node, after: Node) -> tuple[list[str], list[str]]:
    """The keys of the rows of *table* to write and of those to delete, where *before* becomes *after*.

    Only what was touched is compared: the cost does not grow with the number of entries.
    """
    old, new = table.entries(before), table.entries(after)
    keys = changed_keys(old, new)
    held = {key: new[key] for key in keys if key in new and table.holds(new[key])}
    written = [key for key, value in held.items() if key not in old or not table.same(old[key], value)]
    return written, [key for key in keys if key in old and table.holds(old[key]) and key not in held]


def _pod_row(key: str, pod: Pod) -> Row:
    identity = key, pod.uid, pod.name, pod.namespace, pod.attempt, pod.qos.value, pod.cgroup_parent
    texts = json.dumps(dict(pod.labels)), json.dumps(dict(pod.annotations))
    return *identity, *texts, pod.cpu_total_milli, int(pod.stopped)


def _to_pod(row: Row) -> Pod:
    key, uid, name, namespace, attempt, qos, cgroup_parent, *texts, cpu_total_milli, stopped = row
    labels, annotations = kept_of_pod(*map(_texts, texts))  # an earlier version has stored all of them
    return Pod(
        key=key,
        uid=uid,
        name=name,
        namespace=namespace,
        attempt=attempt,
        qos=QosClass(qos),
        cgroup_parent=cgroup_parent,
        labels=labels,
        annotations=annotations,
        cpu_total_milli=cpu_total_milli,
        stopped=bool(stopped),
    )


def _texts(document: str) -> dict[str, str]:
    texts = json.loads(document)
    if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
        raise ValueError(f"{document[:100]!r} is not a map of strings")
    return texts


def _container_row(key: str, c: Container) -> Row:
    identity = key, c.pod, c.name, c.attempt, c.pod_name, c.namespace, c.qos.value
    request = (c.memory_request_bytes.low, c.memory_request_bytes.high) if c.memory_request_bytes else (None, None)
    quota = (c.cpu_quota.quota_us, c.cpu_quota.period_us) if c.cpu_quota else (None, None)
    hints = ";".join(map(format_cpuset, c.hints))
    return (
        *identity,
        c.cpu_milli,
        c.cpu_limit_milli,
        c.memory_limit_bytes,
        c.state.value,
        c.reservation,
        *request,
        hints,
        int(c.warm),
        *quota,
        int(c.stays),
        json.dumps(to_plain(c.desired)) if c.desired else "",
        json.dumps(to_plain(c.missed)) if c.missed else "",
    )


def _to_container(row: Row) -> Container:
    key, pod, name, attempt, pod_name, namespace, qos, *sizes = row
    cpu_milli, cpu_limit_milli, memory_limit_bytes, state, mark, request_low, request_high, hints, warm, *more = sizes
    *quota, stays, desired, missed = more
    return Container(
        key=intern(key),
        pod=intern(pod),  # many have the same, as while they came
        name=intern(name),
        attempt=attempt,
        pod_name=intern(pod_name),
        namespace=intern(namespace),
        qos=QosClass(qos),
        cpu_milli=cpu_milli,
        cpu_limit_milli=cpu_limit_milli,
        memory_limit_bytes=memory_limit_bytes,
        memory_request_bytes=None if request_low is None else Interval(request_low, request_high),
        state=ContainerState(state),
        reservation=mark,
        hints=tuple(map(parse_interned, hints.split(";"))) if hints else (),
        warm=bool(warm),
        cpu_quota=None if quota[0] is None else CfsQuota(*quota),
        stays=bool(stays),
        desired=from_plain(Desired, json.loads(desired)) if desired else None,
        missed=from_plain(Missed, json.loads(missed)) if missed else None,
    )


def _grant_row(key: str, grant: Grant) -> Row:
    sets = (grant.cpus, grant.mems, grant.exclusive)
    homes = map(format_cpuset, (grant.home, grant.home_mems))
    return key, *map(format_cpuset, sets), grant.pool, *homes, grant.quota.value


def _to_grant(row: Row) -> Grant:
    _, cpus, mems, exclusive, pool, home, home_mems, quota = row
    homes = parse_interned(home), parse_interned(home_mems)
    return alike(
        Grant(parse_interned(cpus), parse_interned(mems), parse_interned(exclusive), pool, *homes, CpuQuota(quota))
    )


@lru_cache(maxsize=4096)
def _controls(document: str) -> Controls:
    return from_plain(Controls, json.loads(document))


def _applied_row(key: str, applied: Applied) -> Row:
    return key, *(each.plain(getattr(applied, each.name)) for each in STORED)


@lru_cache(maxsize=1024)
def _applied(*values: str | int) -> Applied:
    # One object for all equal grants: see `model.grant.alike`.
    return Applied(**{each.name: each.from_plain(value) for each, value in zip(STORED, values, strict=True)})


def _kept_row(key: str, kept: Kept) -> Row:
    return key, json.dumps({name: format_cpuset(cpus) for name, cpus in kept.by_name.items()})


def _to_kept(row: Row) -> Kept:
    return Kept({name: parse_cpuset(cpus) for name, cpus in _texts(row[1]).items()})


PODS = Table("pods", 11, lambda node: node.pods, _pod_row, _to_pod)
CONTAINERS = Table("containers", 21, lambda node: node.containers, _container_row, _to_container)
GRANTS = Table("grants", 8, lambda node: node.grants, _grant_row, _to_grant)
APPLIED = Table("applied", 1 + len(STORED), lambda node: node.applied, _applied_row, lambda row: _applied(*row[1:]))
KEPT = Table("kept", 2, lambda node: node.kept, _kept_row, _to_kept)
INCIDENTS = Table(
    *("incidents", 2, lambda node: node.incidents),
    to_row=lambda key, incident: (key, json.dumps(to_plain(incident))),
    from_row=lambda row: from_plain(Incident, json.loads(row[1])),
    holds=lambda incident: incident.excess is None,
)
QUOTA_INCIDENTS = replace(INCIDENTS, name="quota_incidents", holds=lambda incident: incident.excess is not None)
OF_POD = Table("of_pod", 1, lambda node: node.containers, lambda key, _: (key,), lambda _: True, lambda c: c.of_pod)
KUBELET_FILES = Table(
    *("kubelet_files", 2, lambda node: node.containers),
    to_row=lambda key, container: (key, " ".join(container.kubelet_files)),
    from_row=lambda row: tuple(row[1].split()),
    holds=lambda container: bool(container.kubelet_files),
    same=lambda one, other: one.kubelet_files == other.kubelet_files,
)
CONTROLS = Table(
    *("controls", 2, lambda node: node.grants),
    to_row=lambda key, grant: (key, json.dumps(to_plain(grant.controls))),
    from_row=lambda row: _controls(row[1]),
    holds=lambda grant: grant.controls != NO_CONTROLS,
    same=lambda one, other: one.controls == other.controls,
)
FORMER_CONTROLS = replace(CONTROLS, name="former_controls", entries=lambda node: node.former)
FORMER = replace(GRANTS, name="former", entries=lambda node: node.former)


def tables() -> Iterator[Table]:
    """All tables that hold a map of a node."""
    yield from (PODS, CONTAINERS, OF_POD, KUBELET_FILES, GRANTS, CONTROLS, APPLIED, KEPT, FORMER, FORMER_CONTROLS)
    yield from (INCIDENTS, QUOTA_INCIDENTS)
