"""The containers that cannot be created at present: a bounded list in which no pod hides those of other pods."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from time import time

from criproxy.model.node import Node
from criproxy.model.text.notices import Refusal
from criproxy.model.workload import Container, Sizes

REFUSAL_S = 3600.0
"""The kubelet repeats refused creates: one that it has not repeated for so long is no longer wanted."""
MAX_REFUSALS = 100
MAX_OF_POD = 10
"""Listed containers of one pod: the others are likely to have the same problem."""
MAX_LEFT_OUT = 10_000
"""Refusals that are not listed but remembered, so that each is counted once."""


@dataclass(frozen=True, slots=True)
class _Listed:
    namespace: str
    pod: str
    """Its name: a pod that is created again has another sandbox each time."""
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """A refusal that is not listed; its text is not kept."""

    sandbox: str
    times: int
    at_s: float


@dataclass(slots=True, repr=False, eq=False)
class Refusals:
    """The containers that were refused last. Use only in the event loop's thread.

    Args:
        clock: seconds since the epoch.
    """

    _clock: Callable[[], float] = time
    _listed: dict[str, _Listed] = field(default_factory=dict)
    """By container name, in the order of their last refusal, as is `_left_out`."""
    _left_out: dict[int, _LeftOut] = field(default_factory=dict)
    """By the hash of the name: tenants choose the names, which may be long."""

    def listed(self) -> list[Refusal]:
        """Return the containers refused within the last `REFUSAL_S` and not placed since, the newest first."""
        self._expire_listed()
        return [each.refusal for each in reversed(self._listed.values())]

    def omitted(self) -> int:
        """Return how many more there are."""
        since_s = self._clock() - REFUSAL_S
        for key in [key for key, each in self._left_out.items() if each.at_s <= since_s]:
            del self._left_out[key]
        return len(self._left_out)

    def add(self, about: Container, text: str) -> None:
        """Add the refusal of *about*, with the message *text*."""
        times = self.remove(about) + 1
        refusal = Refusal(about.title, text, times, self._clock(), about.pod)
        self._listed[about.title] = _Listed(about.namespace, about.pod_name, refusal)
        self._expire_listed()
        of_pod = [each for each in self._listed.values() if _pod(each) == (about.namespace, about.pod_name)]
        if len(of_pod) > MAX_OF_POD:
            self._leave_out(of_pod[0].refusal)
        elif len(self._listed) > MAX_REFUSALS:
            self._leave_out(_least_missed(self._listed.values()))

    def remove(self, about: Container) -> int:
        """Remove the refusals of *about*, and return how many there were."""
        listed, left_out = self._listed.pop(about.title, None), self._left_out.pop(hash(about.title), None)
        return listed.refusal.times if listed else left_out.times if left_out else 0

    def sandboxes(self) -> frozenset[str]:
        """Return the sandboxes of the containers that were refused."""
        listed = (each.refusal.sandbox for each in self._listed.values())
        return frozenset((*listed, *(each.sandbox for each in self._left_out.values())))

    def forget(self, sandboxes: Collection[str]) -> None:
        """Drop the refusals of containers in these *sandboxes*, which are gone."""
        for title in [title for title, each in self._listed.items() if each.refusal.sandbox in sandboxes]:
            del self._listed[title]
        for key in [key for key, each in self._left_out.items() if each.sandbox in sandboxes]:
            del self._left_out[key]

    def _leave_out(self, refusal: Refusal) -> None:
        del self._listed[refusal.container]
        key = hash(refusal.container)
        self._left_out.pop(key, None)
        self._left_out[key] = _LeftOut(refusal.sandbox, refusal.times, refusal.at_s)
        if len(self._left_out) > MAX_LEFT_OUT:
            del self._left_out[next(iter(self._left_out))]

    def _expire_listed(self) -> None:
        since_s = self._clock() - REFUSAL_S
        for title in [title for title, each in self._listed.items() if each.refusal.at_s <= since_s]:
            del self._listed[title]


def _pod(listed: _Listed) -> tuple[str, str]:
    return listed.namespace, listed.pod


def _least_missed(listed: Iterable[_Listed]) -> Refusal:
    """Return the oldest refusal of the pod with the most refusals, in the namespace with the most refusals."""
    refusals = list(listed)
    of_namespaces, of_pods = Counter(each.namespace for each in refusals), Counter(map(_pod, refusals))
    return max(refusals, key=lambda each: (of_namespaces[each.namespace], of_pods[_pod(each)])).refusal


@dataclass(slots=True)
class RefusedResizes:
    """The last refusal of a resize of each container, by key."""

    _refusals: dict[str, Refusal] = field(default_factory=dict)
    _since_s: float = field(default_factory=time)
    """When criproxy began to hold resizes, in seconds since the epoch."""

    def add(self, node: Node, container: Container, sizes: Sizes, text: str) -> bool:
        """Count a refused resize, and return whether it is new: the kubelet repeats them, also after our restart.

        Refusals of containers that are no longer on *node* are dropped.
        """
        self._refusals = {key: self._refusals[key] for key in self._refusals.keys() & node.containers.keys()}
        before = self._refusals.get(container.key)
        is_new = container.desired is None or container.desired.sizes != sizes
        times = before.times + 1 if before and not is_new else 1
        self._refusals[container.key] = Refusal(container.title, text, times, time())
        return is_new

    def pending(self, node: Node) -> Mapping[str, Refusal]:
        """Return the refusals of containers of *node* that do not have their desired size yet, by container key."""
        there = node.containers
        return {key: each for key, each in self._refusals.items() if key in there and there[key].desired}

    def silent(self, containers: Iterable[Container], now_s: float, silence_s: float) -> list[str]:
        """Return the keys of containers whose resize the kubelet has not repeated for *silence_s*: it was taken back.

        The kubelet sends no call for a pod that requests its present size again.
        """
        refusals = self._refusals
        waiting = (one for one in containers if one.desired and not one.desired.told)
        last_s = {one.key: refusals[one.key].at_s if one.key in refusals else self._since_s for one in waiting}
        return [key for key, at_s in last_s.items() if now_s - at_s > silence_s]
