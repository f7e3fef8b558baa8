"""The sentences of `criproxy status --check`, and the notices of `status` that follow from the node.

The `Situation` contains the notices about other parts.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from criproxy.api.views.incidents import over_quota, unhealthy_in_use
from criproxy.api.views.shortfalls import sentence, undersized, unplaced_sentence
from criproxy.api.views.situation import Situation
from criproxy.model.attributes import changes, granted, in_place
from criproxy.model.cpuset import format_cpuset, numbered
from criproxy.model.grant import NO_CPUS, Applied, Grant
from criproxy.model.node import Node
from criproxy.model.text.amounts import counted
from criproxy.model.text.bounded import bounded_text, bounded_texts
from criproxy.model.text.notices import NOT_READY, Notice, Values
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.answers.shortfalls import Shortfall, shortfalls, unplaced
from criproxy.placement.invariants import owners_of, violations
from criproxy.placement.policies.parts import names_by_size
from criproxy.placement.rules.release import is_released_by_request

MAX_OF_KIND = 20
"""How many problems of one kind `--check` and `/readyz` list."""
MAX_NAMED = 5
"""How many containers that share by an operator's choice, or without having been placed, are named."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is not as it should be at one moment: `status --check`, `/readyz`, the metrics and the page all say this."""

    problems: Sequence[Notice]
    under_way: Sequence[str] = ()
    """Updates in flight, one sentence each."""
    notices: Sequence[Notice] = ()
    """All notices, those that are problems included."""

    @property
    def not_ready(self) -> str | None:
        """Why the node is not ready, one sentence a line; None if it is."""
        return "\n".join(each.text for each in self._listed() if each.stops_node) or None

    @property
    def runtime_answers(self) -> bool:
        """Whether the runtime, and the image service if it is another program, have answered when last asked."""
        return all(each.kind not in ("resync", "runtime") for each in self.problems)

    def counts(self) -> Mapping[str, int]:
        """How many problems there are, by kind; those because of which the node is not ready also with 0."""
        return {**dict.fromkeys(NOT_READY, 0), **Counter(each.kind for each in self.problems)}

    def _listed(self) -> list[Notice]:
        """Return the first problems of each kind, their texts cut, and how many more there are of each."""
        by_kind: dict[str, list[Notice]] = {}
        for notice in self.problems:
            by_kind.setdefault(notice.kind, []).append(notice)
        first = (notice for notices in by_kind.values() for notice in notices[:MAX_OF_KIND])
        listed = [replace(notice, text=bounded_text(notice.text)) for notice in first]
        for kind, notices in by_kind.items():
            if left := len(notices[MAX_OF_KIND:]):
                listed.append(replace(notices[0], text=f"{counted(left, 'more problem')} of the kind {kind}"))
        return listed

    def to_json(self) -> Values:
        """As in the answer of `status --check`."""
        listed = self._listed()
        return {
            "problems": [each.text for each in listed],
            "under_way": [*bounded_texts(self.under_way, MAX_OF_KIND)],
            "found": [each.to_json() for each in listed],
        }


WELL = Found(())
"""When nothing is wrong."""


def find(situation: Situation) -> Found:
    """Return everything that is wrong."""
    notices = all_notices(situation)
    found = [notice for notice in notices if notice.wrong]
    node, misplacements = situation.node, misplaced(situation)
    found += [Notice("undersized", text) for text in undersized(node, situation.resizes)]
    found += [Notice("unguarded", text) for text in unguarded(node)]
    found += [Notice("unhealthy-card", text) for text in unhealthy_in_use(node, stored=situation.is_stored)]
    later = situation.reserved_later
    found += [Notice("contradiction", text) for text in violations(node, situation.reserved, later=later)]
    found += [Notice("misplaced", text) for text, has_failed in misplacements if has_failed]
    return Found(found, [text for text, has_failed in misplacements if not has_failed], notices)


def all_notices(situation: Situation) -> tuple[Notice, ...]:
    """Return the notices of the controller, and those that follow from the node."""
    return (*situation.notices, *_notices_of_node(situation))


def _notices_of_node(situation: Situation) -> Iterator[Notice]:
    node = situation.node
    if is_released_by_request(node) and situation.policy != "none":
        yield Notice("released", f"the node is released, so no container is placed: {node.released}")
    elif node.released:
        yield Notice("released", f"the node is released, so no container is placed: {node.released}", wrong=False)
    for text in situation.lacking():
        yield Notice("machine", text)
    yield from _over_quota(situation)
    yield from _withheld(situation)
    if situation.policy == "none":
        unseen = "; criproxy does not see when containers start or end, so its list may be out of date"
        front = situation.front["configuration"]
        file = "" if front is None or front["hash"] else ", because there is no policy file"
        text = f"policy none{file}: no container is placed{unseen if node.containers and not situation.follows else ''}"
        yield Notice("policy-none", text, wrong=False)
    short = shortfalls(node, situation.placer)
    yield from _unplaced(situation, {each.container.key for each in short})
    yield from _reserved_later(situation)
    yield from _shares(short)


def _over_quota(situation: Situation) -> Iterator[Notice]:
    """Containers that use more of a card than their vGPU allows."""
    found = list(over_quota(situation.node, stored=situation.is_stored))
    yield from (Notice("over-quota", text) for text in found[:MAX_NAMED])
    if left := len(found[MAX_NAMED:]):
        more = "1 more container is over its quota" if left == 1 else f"{left} more containers are over their quotas"
        yield Notice("over-quota", f"{more}; `criproxy devices` lists all of them")


def _withheld(situation: Situation) -> Iterator[Notice]:
    """Yield a notice while no CPU can become exclusive because criproxy must not update containers with cards."""
    node = situation.node
    if situation.free != NO_CPUS or node.released or situation.policy == "none":
        return
    keys = [key for key in node.applied if node.is_watched(key) and node.containers[key].stays]
    without = node.replace(applied={key: has for key, has in node.applied.items() if key not in keys})
    if keys and (cpus := replace(situation, node=without).free):
        names = names_by_size(node, keys, cpus)
        could = f"{numbered('CPU', cpus)} could, but containers run there that an update could take a card away from"
        yield Notice("withheld", f"no CPU can become exclusive to another container: {could}: {names}", wrong=False)


def _reserved_later(situation: Situation) -> Iterator[Notice]:
    """Yield a notice for each container whose exclusive CPUs were reserved later."""
    node = situation.node
    for key, pod, owned in owners_of(node, situation.reserved):
        if cpus := owned & situation.reserved_later.get(pod, NO_CPUS):
            title = node.containers[key].title if key in node.containers else key
            has = f"{title} has exclusive {numbered('CPU', cpus)}"
            text = f"{has}, now reserved by the policy file; with 'apply: all', the container moves to other CPUs"
            yield Notice("reserved-later", text, wrong=False)


def _unplaced(situation: Situation, reported: Collection[str]) -> Iterator[Notice]:
    """Yield notices for containers that share because the policy was not asked, except those *reported* already."""
    node, policy = situation.node, situation.placer
    found = [key for key in unplaced(node) if key not in reported]
    yield from (Notice("shares", unplaced_sentence(node, key, policy)) for key in found[:MAX_NAMED])
    if left := len(found[MAX_NAMED:]):
        more = "1 more container shares CPUs" if left == 1 else f"{left} more containers share CPUs"
        yield Notice("shares", f"{more} without having been placed, for similar reasons")


def _shares(found: Sequence[Shortfall]) -> Iterator[Notice]:
    """Yield notices for containers that should have exclusive CPUs: all that result from a failure, some others."""
    known = [short for short in found if not short.missed]
    yield from (Notice("shares", sentence(short)) for short in found if short.missed)
    yield from (Notice("shares", sentence(short), wrong=False) for short in known[:MAX_NAMED])
    if left := len(known[MAX_NAMED:]):
        verb = "shares" if left == 1 else "share"
        text = f"{counted(left, 'more container')} should have exclusive CPUs, but {verb} CPUs, for similar reasons"
        yield Notice("shares", text, wrong=False)


def unguarded(node: Node) -> Iterator[str]:
    """Yield a sentence for each watched container that may run on exclusive CPUs; `violations` checks all others."""
    for key, applied in node.applied.items():
        foreign = applied.cpus & node.exclusive_cpus
        if foreign and node.is_watched(key) and node.containers[key].state is not ContainerState.EXITED:
            title, cpus = node.containers[key].title, numbered("CPU", foreign)
            yield f"{title} has no place and may run on {cpus}, exclusive to another container"


def misplaced(situation: Situation) -> list[tuple[str, bool]]:
    """Return a sentence about each container that differs from its grant, and whether its update has failed."""
    node, found = situation.node, list[tuple[str, bool]]()
    for key, grant in node.grants.items():
        container, applied = node.containers.get(key), node.applied.get(key)
        if container is None or is_in_place(container, grant, applied):
            continue
        trouble = situation.troubles.get(key)
        if container.state is ContainerState.CREATED and trouble is None:
            continue  # it is on no CPU yet, and is not moved before it runs if criproxy is a plugin
        why = f" ({counted(trouble.failures, 'update')} failed, the last: {trouble.error})" if trouble else ""
        found.append((f"{container.title} {_difference(grant, applied)}{why}", trouble is not None))
    return found


def _difference(grant: Grant, applied: Applied | None) -> str:
    if applied is None:
        return f"should be on {numbered('CPU', grant.cpus)}, but criproxy does not know where it is"
    if applied.cpus != grant.cpus:
        return f"should be on {numbered('CPU', grant.cpus)} but is on {format_cpuset(applied.cpus)}"
    if grant.mems and applied.mems != grant.mems:
        wanted, has = numbered("NUMA node", grant.mems), format_cpuset(applied.mems)
        return f"should have memory of {wanted} but has memory of {has}"
    return f"should run {' and '.join(changes(applied, granted(grant)))}"


def is_in_place(container: Container, grant: Grant | None, applied: Applied | None) -> bool:
    """Whether the container has what it was granted, has no grant, or has exited."""
    return grant is None or container.state is ContainerState.EXITED or in_place(grant, applied)
