"""The history of one container, as JSON values: the answer of `criproxy explain`.

Pure functions of the node and the history, like `status`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criproxy.api.views import candidates as choices
from criproxy.api.views.events import event
from criproxy.api.views.incidents import quotas_exceeded
from criproxy.api.views.shortfalls import to_json
from criproxy.api.views.situation import Situation
from criproxy.api.views.status import row
from criproxy.devices.holdings import Facts, allocated_of, ids_of, quota_of, source_of
from criproxy.errors import CriproxyError
from criproxy.model.node import Node
from criproxy.model.record import LAST, Kind, Record
from criproxy.model.text.bounded import bounded, bounded_text
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import SHORT_ID, Container, ContainerState
from criproxy.placement.answers.choice import Choice
from criproxy.placement.answers.shortfalls import shortfall

CANDIDATES = 8
"""The number of candidates that an error names."""
MAX_NAME_CHARS = 200
"""The longest name in an error."""
EARLIER = 100
"""The number of earlier containers of the same name that are listed."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One container instance, from its create to its end."""

    name: str
    """As `Container.life`."""
    container: Container | None
    """None: the node no longer has it, or never had it."""
    records: Sequence[Record]
    considered: Sequence[Record] = ()
    """The candidates of its decisions."""

    @property
    def title(self) -> str:
        """NAMESPACE/POD/CONTAINER."""
        return self.container.title if self.container else self.records[-1].container

    @property
    def id(self) -> str:
        """The runtime's id; empty if it has or had none."""
        if self.container and self.container.has_id:
            return self.container.key
        return next((record.key for record in reversed(self.records) if record.key != self.name), "")

    @property
    def state(self) -> str:
        """As in `status`; for a container that the node does not have, the kind of its last record (see `LAST`)."""
        if self.container:
            return self.container.state.value
        last = self.records[-1].kind
        return last.value if last in LAST else "gone"

    @property
    def is_considered(self) -> bool:
        """Whether the candidates of its present place are recorded: not if all containers were placed again."""
        placed = [record.at_s for record in self.records if record.kind in _PLACING and record.facts.get("cpus")]
        return bool(self.considered) and self.considered[-1].at_s >= max(placed, default=0.0)

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key for instances of one name: running ones, then those with the latest record, rank highest."""
        lives = self.container is not None and self.container.state is not ContainerState.EXITED
        return lives, self.records[-1].at_s if self.records else 0.0


def instances(node: Node, records: Iterable[Record], text: str) -> list[Instance]:
    """Return the instances in the node and the history that match *text*, the best match first.

    A full name matches all containers that had it; otherwise *text* is the prefix of an id or of a reservation.
    """
    events: dict[str, list[Record]] = {}
    considered: dict[str, list[Record]] = {}
    for record in records:
        (considered if record.kind is Kind.CONSIDERED else events).setdefault(record.life, []).append(record)
    known = {c.life: c for c in node.containers.values() if _matches(c, text) or c.life in events}
    names = dict.fromkeys([*known, *events])
    found = [Instance(name, known.get(name), events.get(name, ()), considered.get(name, ())) for name in names]
    named = [life for life in found if life.title == text]
    chosen = named or [life for life in found if life.id.startswith(text) or life.name.startswith(text)]
    return sorted(chosen, key=lambda life: life.rank, reverse=True)


def _matches(container: Container, text: str) -> bool:
    return container.key.startswith(text) or container.reservation.startswith(text) or container.title == text


def choose(node: Node, records: Iterable[Record], text: str, known: Iterable[str] = ()) -> Instance:
    """Return the container instance that matches *text*.

    Args:
        node: has the known containers.
        records: the history of the containers that match *text*, see `instances`.
        text: the argument of the user.
        known: further names to propose, of containers that are gone.

    Raises:
        CriproxyError: no container matches, or several do; the text names candidates.
    """
    found = instances(node, records, text)
    if not found:
        raise CriproxyError(_unknown(node, text, known))
    if len(found) > 1 and found[0].title != text:
        names = [f"{life.id[:SHORT_ID] or life.name} ({life.title}, {life.state})" for life in found]
        raise CriproxyError(
            f"{_quoted(text)} is the beginning of {len(found)} IDs: {_listed(names)}; give more of the ID, or "
            "NAMESPACE/POD/CONTAINER"
        )
    return found[0]


def to_values(
    situation: Situation,
    life: Instance,
    records: Iterable[Record],
    waits_for: Sequence[str] = (),
    now: Choice | None = None,
    controls: Values | None = None,
) -> Values:
    """Return the answer of `criproxy explain`.

    Args:
        situation: the node.
        life: the container instance.
        records: the history of all containers of its name.
        waits_for: names of the containers that still use CPUs granted to it.
        now: the candidates at this moment, if the history does not have those of its decision.
        controls: what its classes set, and whether it has that; None without any, or if unknown.
    """
    container = life.container
    asked = next((record for record in reversed(life.records) if record.kind is Kind.ASKED), None)
    others = instances(situation.node, records, life.title)
    lacks = shortfall(situation.node, situation.placer, container.key) if container else None
    return {
        "notices": [notice.to_json() for notice in situation.notices],
        "container": row(situation, container) if container else _gone(life),
        "asked": {"read_as": list(asked.sentences), "sent": dict(asked.facts)} if asked else None,
        "why": _why(life.records),
        "devices": devices(life.records),
        "controls": controls,
        "over_quota": quotas_exceeded(situation.node, life.name),
        "choices": [*choices.recorded(life.considered), *([choices.values(now, "")] if now else [])],
        "should_own": to_json(lacks) if lacks else None,
        "waits_for": list(waits_for),
        "events": [event(record) for record in life.records],
        "earlier": [_line(other) for other in others if other.name != life.name][:EARLIER],
    }


def devices(records: Sequence[Record]) -> list[Values]:
    """Return the cards of the container by class: the allocation, its evidence, and the values in its create."""
    found = next((record.facts for record in reversed(records) if record.kind is Kind.DEVICES), {})
    kinds = [key.removesuffix("_source") for key in found if key.endswith("_source")]
    return [
        {
            "class": kind,
            "evidence": source_of(found, kind),
            "allocated": allocated_of(found, kind),
            "cards": ids_of(found, kind),
            "pci_addresses": str(found.get(f"{kind}_pci") or ""),
            "nodes": str(found.get(f"{kind}_nodes") or ""),
            "numa_nodes": str(found.get(f"{kind}_numa") or ""),
            "quota": _quota(found, kind),
        }
        for kind in kinds
    ]


def _quota(found: Facts, kind: str) -> Values | None:
    """What it may use of its vGPU, and what holds it to that."""
    quota = quota_of(found, kind)
    if quota is None:
        return None
    return {
        "profile": quota.profile,
        "memory_mib": quota.memory_mib or None,
        "cores_percent": quota.cores_percent or None,
        "enforced_by": quota.enforced_by,
        "not_enforced": quota.not_enforced,
    }


_PLACING = frozenset({Kind.GRANTED, Kind.RESIZED, Kind.ADOPTED, Kind.REFUSED, Kind.PASSED})
_MOVING = frozenset({Kind.UPDATED, Kind.RELEASED})


def _why(records: Sequence[Record]) -> list[str]:
    """Return the reasons of its present place, or of its refusal: how it was placed, and what moved it last."""
    moved: list[str] = []
    for record in reversed(records):
        if record.kind in _MOVING and not moved and record.facts.get("why"):
            moved = [f"then {sentence}" for sentence in record.sentences[:1]]
        if record.kind in _PLACING and (record.facts.get("cpus") or record.kind is not Kind.RESIZED):
            return [*record.sentences, *moved]
    return moved


def _line(life: Instance) -> Values:
    last = life.records[-1] if life.records else None
    return {
        "id": life.id,
        "state": life.state,
        "time": timestamp(last.at_s) if last else "",
        "text": last.sentences[0] if last and last.sentences else "",
    }


def _gone(life: Instance) -> Values:
    """Return the identity of a container that the node no longer has."""
    parts = life.title.split("/")
    namespace, pod, name = parts if len(parts) == 3 else ("", "", life.title)
    return {"id": life.id, "namespace": namespace, "pod": pod, "container": name, "state": life.state}


def _unknown(node: Node, text: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    titles = sorted({container.title for container in node.containers.values()} | set(known))
    near = [title for title in titles if text and text in title] or get_close_matches(text, titles, CANDIDATES, 0.5)
    said = f"criproxy knows no container {_quoted(text)}"
    if not near:
        return f"{said}; `criproxy status` lists those that it knows"
    return f"{said}; did you mean {_listed(near)}?"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - CANDIDATES} more" if len(names) > CANDIDATES else ""
    return ", ".join(bounded(names[:CANDIDATES], MAX_NAME_CHARS)) + more


def _quoted(text: str) -> str:
    return repr(bounded_text(text, MAX_NAME_CHARS))
