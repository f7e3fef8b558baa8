"""What is in flight at each container: creates, its start, our updates, its stop, and queries for their outcome.

There is one record for each container with something in flight or an unknown outcome. The state of its start follows
from `TRANSITIONS`, which docs/in-flight.md prints. Other parts of criproxy use the predicates.

Why not earlier: CPUs count from the moment before an update that grants them is sent, because the runtime may apply it
before it answers, and the start of another container must not get in between.

Why not later: CPUs stop counting as soon as the cgroup was read after the answer. Without an answer to a start, the
runtime may still be executing it, so the CPUs count until it has reported "not started" for long enough and the cgroup
was read after that. The store has the node of the last run: the runtime continues updates and starts that criproxy sent
before it stopped.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import MAY_RUN, ContainerState


class Start(Enum):
    """The state of a container's start."""

    NONE = "no start is in flight"
    SENT = "the runtime has received StartContainer and has not answered"
    UNKNOWN = "the runtime may be starting the container, and no answer will come"
    RETRIED = "both SENT and UNKNOWN: the kubelet has repeated a start whose outcome is unknown"


class StartEvent(Enum):
    """What changes the state of a start."""

    SEND = "criproxy sends StartContainer to the runtime"
    ANSWER = "criproxy has applied the answer to the node"
    CUT = "the call ended without an answer, or was in flight when criproxy started"
    RESOLVE = "criproxy has asked the runtime for the outcome"
    END = "the container has ended"


_N, _S, _U, _R = Start
TRANSITIONS: Mapping[Start, Mapping[StartEvent, Start]] = {
    state: dict(zip(StartEvent, after, strict=True))
    for state, after in {
        # event: SEND, ANSWER, CUT, RESOLVE, END
        Start.NONE: (_S, _N, _U, _N, _N),
        Start.SENT: (_S, _N, _U, _S, _S),
        Start.UNKNOWN: (_R, _U, _U, _N, _N),
        Start.RETRIED: (_R, _U, _U, _S, _S),
    }.items()
}
"""State → event → next state. A start that criproxy still holds is not in flight: the runtime has not received it."""

_SENT, _UNKNOWN = {Start.SENT, Start.RETRIED}, {Start.UNKNOWN, Start.RETRIED}


@dataclass(slots=True)
class _Record:
    """What is in flight at one container."""

    creates: int = 0
    """CreateContainer calls for this place that the runtime may have received, and that have not ended."""
    start: Start = Start.NONE
    start_cpus: CpuSet = NO_CPUS
    """CPUs on which a start of unknown outcome may start it."""
    until_s: float = 0.0
    """Until when "not started" does not prove that the start has failed, on the loop's clock."""
    sent_cpus: CpuSet = NO_CPUS
    """CPUs to which updates may have moved it; its cgroup was not read since."""
    stop_requested: bool = False
    """Whether the kubelet has stopped it: if it does not run now, it never will."""
    left: Callable[[], bool] | None = None
    """Set if the runtime reports that it does not run: returns whether it still has processes, as containerd 1.6 leaves
    them after a start that was cut."""
    left_s: float = 0.0
    """When `left` was set, on the monotonic clock; 0 if it is not set."""
    reported: bool = False
    """Whether the lost processes were reported."""
    unlisted_s: float = 0.0
    """Since when lists lack it although it has not ended as far as can be seen, on the monotonic clock; 0: they do not.
    """
    question: asyncio.Event | None = None
    """None unless a task queries the runtime for the outcome; set if the task has to query it again."""


_IDLE = _Record()


@dataclass(slots=True)
class InFlight:
    """The records by container key, or by reservation for a create.

    Args:
        read: called whenever a container may run on fewer CPUs than before.
        lost_after_s: how long processes may continue to run before they count as lost by the runtime.
    """

    read: Callable[[], None] = lambda: None
    lost_after_s: float = 0.0
    _records: dict[str, _Record] = field(default_factory=dict)
    _touched: set[str] = field(default_factory=set)

    def is_creating(self, key: str) -> bool:
        """Whether the runtime may be executing a create for the place *key*, so that no list shows its outcome."""
        return self._at(key).creates > 0

    def is_sent(self, key: str) -> bool:
        """Whether the runtime has received a StartContainer of *key* and will answer it."""
        return self._at(key).start in _SENT

    def sent(self) -> frozenset[str]:
        """Return the keys for which `is_sent` is true."""
        return frozenset(filter(self.is_sent, self._records))

    def is_start_unknown(self, key: str) -> bool:
        """Whether a start of *key* may be in flight that will not be answered."""
        return self._at(key).start in _UNKNOWN

    def may_come_up(self, key: str, now_s: float) -> bool:
        """Whether such a start may still run, although the runtime reports "not started" at *now_s* (loop's clock)."""
        return self.is_start_unknown(key) and now_s < self._at(key).until_s

    def is_starting(self, key: str) -> bool:
        """Whether a start of *key* may be in flight, whether or not it will be answered."""
        return self._at(key).start is not Start.NONE

    def outlasts_stop(self, key: str) -> bool:
        """Whether *key* may survive a stop, because the runtime does not know that it runs or will run."""
        return self.is_starting(key) or self.is_left(key)

    def is_stopped(self, key: str) -> bool:
        """Whether the kubelet has stopped *key*, so that it never runs if it does not run now."""
        return self._at(key).stop_requested

    def is_left(self, key: str) -> bool:
        """Whether *key* has processes although the runtime reported, when last asked, that it does not run."""
        left = self._at(key).left
        return left is not None and left()

    def is_lost(self, key: str) -> bool:
        """Whether that has been so for too long for the processes to be still ending."""
        return self.is_left(key) and monotonic() - self._at(key).left_s >= self.lost_after_s

    def lost(self) -> list[str]:
        """Return the keys for which `is_lost` is true."""
        return list(filter(self.is_lost, self._records))

    def is_unread(self, key: str) -> bool:
        """Whether the effect of an update on *key* is unknown.

        It is known when its cgroup was read or, without a cgroup, when another update was answered.
        """
        return bool(self._at(key).sent_cpus)

    def cpus(self, node: Node, key: str) -> CpuSet:
        """Return all CPUs on which *key*, one of the node's containers, may be running now."""
        container, record = node.containers[key], self._at(key)
        if record.start is Start.NONE and not (container.state in MAY_RUN and container.has_id):
            return NO_CPUS
        return self.once_started(node, key)

    def once_started(self, node: Node, key: str) -> CpuSet:
        """Return all CPUs on which *key* may be running as soon as it runs."""
        record, applied = self._at(key), node.applied.get(key)
        in_flight = record.sent_cpus | record.start_cpus
        has = node.topology.cpus if applied is None else applied.cpus
        return has | in_flight if in_flight else has

    def changed(self) -> Collection[str]:
        """Return the keys whose `cpus` may have changed since the last call of this method."""
        touched, self._touched = self._touched, set()
        return touched

    def inherit(self, node: Node) -> list[str]:
        """Assume that updates were in flight when *node*, just loaded, was stored: any container may be on any CPU.

        Returns:
            The keys of the containers of which a start may be in flight.
        """
        for key in node.grants:
            if node.containers[key].has_id:
                self.send(key, node.topology.cpus)
        return unseen_starts(node)

    def create(self, key: str) -> None:
        """Record that a create for the place *key* is about to be decided and sent."""
        self._change(key).creates += 1

    def end_create(self, key: str) -> None:
        """Record that a create for the place *key* has ended; a query for its outcome has to begin again."""
        record = self._change(key)
        record.creates -= 1
        if record.question:
            record.question.set()
        self._drop_if_idle(key)

    def send(self, key: str, cpus: CpuSet) -> None:
        """Record that an update with *cpus* is about to be sent."""
        self._change(key).sent_cpus |= cpus

    def has_read(self, key: str) -> None:
        """Record that the cgroup of *key* was read or, if it has none yet, that an update was answered."""
        if self.is_unread(key):
            self._change(key).sent_cpus = NO_CPUS
            self._drop_if_idle(key)
            self.read()

    def start(self, key: str, event: StartEvent) -> None:
        """Apply *event* to the start of *key*, see `TRANSITIONS`; for an unanswered start, use `lose_start`."""
        record = self._change(key)
        record.start = TRANSITIONS[record.start][event]
        if record.start not in _UNKNOWN:  # it runs by now, or never will: its cgroup shows where
            record.sent_cpus, record.start_cpus, record.until_s = record.sent_cpus | record.start_cpus, NO_CPUS, 0.0
        self._drop_if_idle(key)
        if event is StartEvent.RESOLVE:  # it may turn out not to run, which no change of the node shows
            self.read()

    def lose_start(self, node: Node, key: str, until_s: float) -> None:
        """Record a start of *key* without an answer; "not started" is believed only after *until_s*.

        It starts with what was applied before, as far as that is known: updates of ours may be lost meanwhile.
        """
        applied, container, record = node.applied.get(key), node.containers.get(key), self._change(key)
        known = applied if container and container.state is ContainerState.CREATED else None
        record.start_cpus |= known.cpus if known else node.topology.cpus
        record.until_s = until_s
        self.start(key, StartEvent.CUT)

    def stop(self, key: str) -> None:
        """Record that the kubelet has stopped *key*, of which a start may be in flight."""
        self._change(key).stop_requested = True

    def set_left(self, key: str, left: Callable[[], bool] | None) -> None:
        """Record whether the runtime has lost processes of *key*: *left* as in `_Record.left`, or None without any."""
        if not (left and self.is_left(key)):
            record = self._change(key)
            record.left, record.left_s, record.reported = left, monotonic() if left else 0.0, False
            self._drop_if_idle(key)

    def report(self, key: str) -> bool:
        """Whether *key* is left running and that was not reported yet; mark it as reported."""
        is_new = self.is_left(key) and not self._at(key).reported
        if is_new:
            self._change(key).reported = True
        return is_new

    def miss(self, key: str) -> None:
        """Record that a list lacks *key*, which has not ended as far as can be seen."""
        record = self._change(key)
        record.unlisted_s = record.unlisted_s or monotonic()

    def unlisted_s(self, key: str) -> float:
        """Return for how long lists have lacked *key*; 0 if the last one had it, or it has ended."""
        since_s = self._at(key).unlisted_s
        return monotonic() - since_s if since_s else 0.0

    def unlisted(self) -> list[str]:
        """Return the keys for which `unlisted_s` is not 0."""
        return [key for key, record in self._records.items() if record.unlisted_s]

    def listed(self, keys: Collection[str]) -> None:
        """Record that a list has the containers *keys*."""
        for key in self.unlisted():
            if key in keys:
                self._records[key].unlisted_s = 0.0
                self._drop_if_idle(key)

    def ask(self, key: str) -> bool:
        """Request the outcome of *key*; True if no task queries it yet, so that the caller has to start one."""
        record = self._change(key)
        is_new = record.question is None
        self.question(key).set()
        return is_new

    def question(self, key: str) -> asyncio.Event:
        """Return the event that wakes the task which queries the outcome of *key*."""
        record = self._change(key)
        record.question = record.question or asyncio.Event()
        return record.question

    def is_asked(self, key: str) -> bool:
        """Whether a task queries the outcome of *key*."""
        return self._at(key).question is not None

    def answered(self, key: str) -> None:
        """Record that the task which queried the outcome of *key* has ended."""
        self._change(key).question = None
        self._drop_if_idle(key)

    def retain(self, node: Node) -> None:
        """Drop the updates of containers that have no grant in *node*, and everything about containers that ended.

        Watched and released containers have no grant either; their starts of unknown outcome remain.
        """
        for key in [key for key in self._records if key not in node.grants]:
            container = node.containers.get(key)
            if container is None or container.state is ContainerState.EXITED:
                self.start(key, StartEvent.END)
                self._change(key).unlisted_s = 0.0
            self.has_read(key)
            self._change(key).stop_requested &= key in node.containers
            if not self.is_left(key):
                self.set_left(key, None)
        # A key with neither record nor grant has no CPUs, as before; if nothing is placed, `changed` is never called.
        self._touched = {key for key in self._touched if key in self._records or key in node.grants}

    def _at(self, key: str) -> _Record:
        return self._records.get(key, _IDLE)

    def _change(self, key: str) -> _Record:
        self._touched.add(key)
        return self._records.setdefault(key, _Record())

    def _drop_if_idle(self, key: str) -> None:
        """Drop the record of *key* if nothing is in flight there."""
        if self._records.get(key) == _IDLE:
            del self._records[key]


def unseen_starts(node: Node) -> list[str]:
    """Return the keys of the containers of *node* of which a start may be in flight that criproxy did not see.

    They have a place and an id, and are not known to run or to have ended.
    """
    unsure = (ContainerState.CREATED, ContainerState.UNKNOWN)
    placed = (node.containers[key] for key in node.grants)
    return [each.key for each in placed if each.has_id and each.state in unsure]
