"""What must be true when nobody has asked for anything for a while."""

import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from criproxy.cri.api_pb2 import CONTAINER_CREATED, CONTAINER_EXITED, CONTAINER_RUNNING
from lab.chaos.checker.cgroups import CpuSet, Group, show
from lab.chaos.checker.runtime import Listed, Row, Saved, Unavailable


@dataclass(frozen=True, slots=True)
class Picture:
    """A node as seen from outside, all at about the same moment."""

    cpus: CpuSet
    """All that pods may use."""
    groups: Mapping[str, Group]
    listed: Mapping[str, Listed]
    sandboxes: AbstractSet[str]
    saved: Saved
    owns: Mapping[str, tuple[int, ...]]
    """POD/NAME → numbers of CPUs of its own that are right."""
    one_pool: bool = True
    """Whoever shares shares all that nobody owns. Else only the store tells what is withheld, and for whom."""
    ready: Mapping[str, str] = field(default_factory=dict)
    """By uid the name of each pod that has a sandbox which is ready."""

    def allowed(self, one: Listed) -> tuple[int, ...]:
        """How many CPUs a container may own."""
        return self.owns.get(one.title, (0,))

    def alive(self, state: int) -> dict[str, Listed]:
        """The containers in *state*, except those that a later attempt has replaced."""
        latest: dict[tuple[str, str], int] = {}
        for one in self.listed.values():
            place = one.sandbox, one.name
            latest[place] = max(latest.get(place, 0), one.attempt)
        return {
            key: one
            for key, one in self.listed.items()
            if one.state == state and (state == CONTAINER_RUNNING or one.attempt == latest[one.sandbox, one.name])
        }


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that is not as it must be."""

    text: str
    titles: frozenset[str] = frozenset()
    """Of the containers concerned, where criproxy must know of it: ``status --check`` has to name one of them."""


def problems(seen: Picture) -> list[str]:
    """Everything that is wrong, one sentence each; empty if nothing is."""
    return [wrong.text for wrong in wrongs(seen)]


def wrongs(seen: Picture) -> list[Wrong]:
    """Everything that is wrong."""
    said = seen.alive(CONTAINER_RUNNING)
    running = {key: one for key, one in said.items() if key in seen.groups}
    missing = (f"{said[key].title} runs, but nothing is in its cgroup" for key in said.keys() - running.keys())
    rest = (*missing, *_leaks(seen, running), *_kept(seen, running), *_store(seen, running))
    return [*_places(seen, running), *map(Wrong, rest)]


def _places(seen: Picture, running: Mapping[str, Listed]) -> Iterator[Wrong]:
    """Lost places: owners without their whole set, or not alone on it."""
    for key, one in running.items():
        cpus, allowed = seen.groups[key].cpus, seen.allowed(one)
        if allowed == (0,):
            continue
        if 0 not in allowed and len(cpus) not in allowed:
            text = f"lost place: {one.title} shall own {allowed[0]} CPUs and runs on {show(cpus)}"
            yield Wrong(text, frozenset([one.title]))
        for other, group in seen.groups.items():
            if 0 not in allowed and other in running and other != key and group.cpus & cpus:
                others = f"{running[other].title} runs on {show(group.cpus)}"
                text = f"lost place: {one.title} owns {show(cpus)}, and {others}"
                yield Wrong(text, frozenset([one.title, running[other].title]))


def _leaks(seen: Picture, running: Mapping[str, Listed]) -> Iterator[str]:
    """Leaked places: CPUs withheld from those that share though nobody owns them."""
    counts = [seen.allowed(one) for one in running.values()]
    created = [seen.allowed(one) for one in seen.alive(CONTAINER_CREATED).values()]
    if not seen.one_pool or any(len(count) > 1 for count in (*counts, *created)):
        return  # or it is not known who owns
    owned = frozenset().union(*(seen.groups[key].cpus for key, one in running.items() if seen.allowed(one) != (0,)))
    waiting = sum(count[0] for count in created)
    for key, one in running.items():
        if seen.allowed(one) == (0,):
            kept = _idle(seen)
            withheld = seen.cpus - owned - seen.groups[key].cpus - kept
            if len(withheld) != waiting:
                yield (
                    f"leaked place: {one.title} runs on {show(seen.groups[key].cpus)}, owners on {show(owned)}; "
                    f"{show(withheld)} are withheld, and created containers shall own {waiting}"
                )


def _idle(seen: Picture) -> CpuSet:
    """CPUs that are kept for pods and that none of their containers has."""
    kept: CpuSet = frozenset().union(*(cpus for names in seen.saved.kept.values() for cpus in names.values()))
    return kept.difference(*(row.exclusive for row in seen.saved.rows.values()))


def _kept(seen: Picture, running: Mapping[str, Listed]) -> Iterator[str]:
    """CPUs are kept for pods that are there, for containers that owned as many, and nobody else runs on them."""
    for uid, names in seen.saved.kept.items():
        if uid not in seen.ready:
            yield f"leaked place: CPUs are kept for {uid}, which has no sandbox that is ready"
            continue
        pod = seen.ready[uid]
        for name, cpus in names.items():
            most = max(seen.owns.get(f"{pod}/{name}", (0,)))
            if len(cpus) > most:
                yield f"leaked place: {show(cpus)} are kept for {pod}/{name}, which shall own {most} CPUs"
            for key, one in running.items():
                if one.pod != pod and seen.groups[key].cpus & cpus:
                    on = show(seen.groups[key].cpus)
                    yield f"lost place: {show(cpus)} are kept for {pod}/{name}, and {one.title} runs on {on}"


def _store(seen: Picture, running: Mapping[str, Listed]) -> Iterator[str]:
    """The database says what the kernel and the runtime say."""
    rows = seen.saved.rows
    for key, row in rows.items():
        if row.pending:
            yield f"store: {row.title} has a place and no id ({row.state}, {key})"
        elif key not in seen.listed:
            yield f"store: {row.title} is in the store ({row.state}), the runtime does not know it ({key[:12]})"
        elif row.cpus is not None and row.state != "exited" and seen.listed[key].state == CONTAINER_EXITED:
            yield f"store: {row.title} has exited and has a place in the store ({row.state}, {key[:12]})"
    for pod in seen.saved.pods - seen.sandboxes:
        yield f"store: pod {pod[:12]} is in the store, the runtime does not know it"
    for key, one in {**running, **seen.alive(CONTAINER_CREATED)}.items():
        found = rows.get(key)
        if found is None or found.cpus is None:
            yield f"store: {one.title} has no place in the store ({key[:12]})"
        elif len(found.exclusive) not in seen.allowed(one):
            yield f"store: {one.title} owns {show(found.exclusive)} in the store and shall own {seen.allowed(one)} CPUs"
        elif key in running:
            yield from _compare(found, seen.groups[key])


def _compare(row: Row, group: Group) -> Iterator[str]:
    if row.cpus != group.cpus:
        yield f"store: {row.title} was granted {show(row.cpus or ())} and runs on {show(group.cpus)}"
    if row.applied != (group.cpus, group.mems):
        said = "nothing" if row.applied is None else f"{show(row.applied[0])} and nodes {show(row.applied[1])}"
        yield f"store: {row.title} has {said} applied, the kernel says {show(group.cpus)} and nodes {show(group.mems)}"


_TIMEOUT_S = 5.0
_REFUSED = "its resize has been refused"
_FAILED = re.compile("the runtime has failed the last .* after criproxy had answered")
"""Our kubelets give up creates in the middle, several in a row now and then."""
_CPUSETS = re.compile(r"also sets cpusets .* for \w+/(?P<title>[^)]+)\)")
"""That it was so once is said until the next create."""


def ask_status(control: Path) -> list[str]:
    """The sentences that it would print, what is under way included; Unavailable where it does not answer."""
    answer = ask(control, "status", check=True)
    return [*answer["problems"], *answer["under_way"]]


def ask(control: Path, command: str, **arguments: object) -> dict[str, Any]:
    """What criproxy answers; Unavailable where it does not."""
    question = json.dumps({"command": command, "arguments": arguments}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(control))
            connection.sendall(question)
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline())["result"]
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(f"{command} does not answer: {error!r}") from error
    return answer


def disagreements(
    found: Sequence[Wrong],
    said: Sequence[str],
    resized: AbstractSet[str] = frozenset(),
    disturbed: AbstractSet[str] = frozenset(),
) -> Iterator[str]:
    """Where --check and what was *found* differ, a sentence each.

    Of those *resized* (POD/NAME) the driver has heard no success: that such a resize is refused is no false alarm. Nor
    is that somebody sets cpusets, of those *disturbed*.
    """
    for wrong in found:
        if wrong.titles and not any(title in sentence for title in wrong.titles for sentence in said):
            yield f"--check is silent: {wrong.text}"
    if not found:
        said = [one for one in said if not (_FAILED.search(one) or _disturbed(one) in disturbed)]
        alarms = (one for one in said if not (_REFUSED in one and any(f"/{title} " in one for title in resized)))
        yield from (f"--check complains, and nothing is wrong: {sentence}" for sentence in alarms)


def _disturbed(said: str) -> str:
    """The container (POD/NAME) whose cpuset somebody has set, as *said*; empty if that is about something else."""
    found = _CPUSETS.search(said)
    return found["title"] if found else ""
