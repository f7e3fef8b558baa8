"""The containers that cannot be created at present: a bounded list in which no pod hides those of other pods."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import time
from typing import TypeVar

from criproxy.model.node import Node
from criproxy.model.text.notices import Refusal
from criproxy.model.workload import Container, Sizes

K = TypeVar("K")
REFUSAL_S = 3600.0
"""The kubelet repeats refused creates: one that it has not repeated for so long is no longer wanted."""
MAX_REFUSALS = 100
MAX_OF_POD = 10
"""Listed containers of one pod: the others are likely to have the same problem."""
MAX_LEFT_OUT = 10_000
"""Refusals that are not listed but remembered, so that each is counted once."""


@dataclass(slots=True, repr=False, eq=False)
class Refusals:
    """The containers that were refused last. Use only in the event loop's thread.

    Args:
        clock: seconds since the epoch.
    """

    _clock: Callable[[], float] = time
    _listed: dict[str, Refusal] = field(default_factory=dict)
    """By container name, in the order of their last refusal, as is `_left_out`."""
    _left_out: dict[int, Refusal] = field(default_factory=dict)
    """By the hash of the name, and without texts: tenants choose the names, which may be long."""

    def listed(self) -> list[Refusal]:
        """Return the containers refused within the last `REFUSAL_S` and not placed since, the newest first."""
        self._listed = self._lasting(self._listed)
        return [*reversed(self._listed.values())]

    def omitted(self) -> int:
        """Return how many more there are."""
        self._left_out = self._lasting(self._left_out)
        return len(self._left_out)

    def add(self, about: Container, text: str) -> None:
        """Add the refusal of *about*, with the message *text*."""
        refusal = Refusal(about.title, text, self.remove(about) + 1, self._clock(), about.pod)
        self._listed[about.title] = refusal
        of_pod = [each for each in self.listed() if _pod(each) == _pod(refusal)]
        if len(of_pod) > MAX_OF_POD:
            self._leave_out(of_pod[-1])
        elif len(self._listed) > MAX_REFUSALS:
            self._leave_out(_least_missed([*self._listed.values()]))

    def remove(self, about: Container) -> int:
        """Remove the refusals of *about*, and return how many there were."""
        refusal = self._listed.pop(about.title, None) or self._left_out.pop(hash(about.title), None)
        return refusal.times if refusal else 0

    def sandboxes(self) -> frozenset[str]:
        """Return the sandboxes of the containers that were refused."""
        return frozenset(each.sandbox for each in (*self._listed.values(), *self._left_out.values()))

    def forget(self, sandboxes: Collection[str]) -> None:
        """Drop the refusals of containers in these *sandboxes*, which are gone."""
        self._listed = {key: each for key, each in self._listed.items() if each.sandbox not in sandboxes}
        self._left_out = {key: each for key, each in self._left_out.items() if each.sandbox not in sandboxes}

    def _leave_out(self, refusal: Refusal) -> None:
        del self._listed[refusal.container]
        self._left_out[hash(refusal.container)] = replace(refusal, container="", text="")
        if len(self._left_out) > MAX_LEFT_OUT:
            del self._left_out[next(iter(self._left_out))]

    def _lasting(self, refusals: dict[K, Refusal]) -> dict[K, Refusal]:
        since_s = self._clock() - REFUSAL_S
        return {key: each for key, each in refusals.items() if each.at_s > since_s}


def _pod(refusal: Refusal) -> str:
    """Return NAMESPACE/POD: a pod that is created again has another sandbox each time."""
    return refusal.container.rpartition("/")[0]


def _namespace(refusal: Refusal) -> str:
    return refusal.container.partition("/")[0]


def _least_missed(refusals: Sequence[Refusal]) -> Refusal:
    """Return the oldest refusal of the pod with the most refusals, in the namespace with the most refusals."""
    of_namespaces, of_pods = Counter(map(_namespace, refusals)), Counter(map(_pod, refusals))
    return max(refusals, key=lambda each: (of_namespaces[_namespace(each)], of_pods[_pod(each)]))


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
