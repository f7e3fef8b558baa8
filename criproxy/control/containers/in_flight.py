"""What is in flight at each container: creates, its start, our updates, its stop, and questions about their outcome.

One record for each container of which criproxy does not know everything; at rest there is none. How far its start is
follows from `TRANSITIONS`, which docs/in-flight.md prints. Other parts of criproxy ask the predicates.

Why not earlier: CPUs count from the moment before an update that gives them is sent, because the runtime may apply it
before it answers, and the start of another container must not get in between.

Why not later: CPUs stop counting as soon as the cgroup was read after the answer. Without an answer to a start, the
runtime may still be at it, so they count until it has denied that long enough and the cgroup was read after that. What
the store remembers is from before our start: the runtime goes on with updates and starts that criproxy left behind.
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
    """How far the start of a container is."""

    NONE = "no start is in flight"
    SENT = "the runtime has received StartContainer and has not answered"
    UNKNOWN = "the runtime may be starting the container, and no answer will come"
    RETRIED = "both SENT and UNKNOWN: the kubelet has repeated a start whose outcome is unknown"


class StartEvent(Enum):
    """What changes that."""

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
"""State → event → next state. A start that criproxy still holds is not in flight: the runtime has nothing of it."""

_SENT, _UNKNOWN = {Start.SENT, Start.RETRIED}, {Start.UNKNOWN, Start.RETRIED}


@dataclass(slots=True)
class _Record:
    """One container."""

    creates: int = 0
    """Calls of CreateContainer for this place that the runtime may have got, and that have not ended."""
    start: Start = Start.NONE
    start_cpus: CpuSet = NO_CPUS
    """Where it may come up by a start of unknown outcome."""
    until_s: float = 0.0
    """On the loop's clock: before that, "not started" says nothing of the outcome."""
    sent_cpus: CpuSet = NO_CPUS
    """Where updates may have put it; its cgroup was not read since."""
    stop_requested: bool = False
    """The kubelet has ended it: if it does not run, it never will."""
    left: Callable[[], bool] | None = None
    """It does not run by the runtime's words, and this says whether it still has processes, as containerd 1.6 leaves
    them of a start that was cut."""
    left_s: float = 0.0
    """Since when, on the monotonic clock; 0 where there are none."""
    reported: bool = False
    """Whether that was reported."""
    question: asyncio.Event | None = None
    """There is a task that asks the runtime about it; set: something has happened that it has not asked about yet."""


_AT_REST = _Record()


@dataclass(slots=True)
class InFlight:
    """The records by container key, or by reservation for a create.

    Args:
        read: called whenever a container may run on fewer CPUs than before.
        lost_after_s: how long processes may go on before the runtime has lost them.
    """

    read: Callable[[], None] = lambda: None
    lost_after_s: float = 0.0
    _records: dict[str, _Record] = field(default_factory=dict)
    _touched: set[str] = field(default_factory=set)

    def is_creating(self, key: str) -> bool:
        """Whether the runtime may be at a create for the place *key*: a list says nothing of what comes of it."""
        return self._at(key).creates > 0

    def is_sent(self, key: str) -> bool:
        """Whether the runtime has a StartContainer of *key* whose answer will come."""
        return self._at(key).start in _SENT

    def sent(self) -> frozenset[str]:
        """The keys of which that is true."""
        return frozenset(filter(self.is_sent, self._records))

    def is_start_unknown(self, key: str) -> bool:
        """Whether a start of *key* may be in flight whose answer will not come."""
        return self._at(key).start in _UNKNOWN

    def may_come_up(self, key: str, now_s: float) -> bool:
        """Whether that is so and a runtime that says "not started" at *now_s*, on the loop's clock, may still do it."""
        return self.is_start_unknown(key) and now_s < self._at(key).until_s

    def is_starting(self, key: str) -> bool:
        """Whether a start of *key* may be in flight, whether or not its answer will come."""
        return self._at(key).start is not Start.NONE

    def is_exit_believed(self, key: str) -> bool:
        """Whether *key* does not run if the runtime says so: its start was not cut, and has left nothing behind."""
        return not self.is_start_unknown(key) and not self.is_left(key)

    def outlasts_stop(self, key: str) -> bool:
        """Whether the runtime ends nothing when *key* is stopped: it does not know that it runs, or will."""
        return self.is_starting(key) or self.is_left(key)

    def is_stopped(self, key: str) -> bool:
        """Whether the kubelet has ended *key*, so that it never runs if it does not run now."""
        return self._at(key).stop_requested

    def is_left(self, key: str) -> bool:
        """Whether *key* has processes though the runtime, when it was last asked, said that it does not run."""
        left = self._at(key).left
        return left is not None and left()

    def is_lost(self, key: str) -> bool:
        """Whether that has been so for so long that it will not end by itself."""
        return self.is_left(key) and monotonic() - self._at(key).left_s >= self.lost_after_s

    def lost(self) -> list[str]:
        """The keys of which that is true."""
        return list(filter(self.is_lost, self._records))

    def is_unread(self, key: str) -> bool:
        """Whether what an update did to *key* is not known: its cgroup says, or one more update if it has none."""
        return bool(self._at(key).sent_cpus)

    def cpus(self, node: Node, key: str) -> CpuSet:
        """All CPUs on which *key*, one of the node's containers, may be running now."""
        container, record, applied = node.containers[key], self._at(key), node.applied.get(key)
        in_flight = record.sent_cpus | record.start_cpus
        if record.start is Start.NONE and not (container.state in MAY_RUN and container.has_id):
            return NO_CPUS
        has = node.topology.cpus if applied is None else applied.cpus
        return has | in_flight if in_flight else has

    def changed(self) -> Collection[str]:
        """The keys of which `cpus` may have changed since this was last asked."""
        touched, self._touched = self._touched, set()
        return touched

    def inherit(self, node: Node) -> list[str]:
        """Take over what was in flight when *node*, just loaded, was stored: any container may be on any CPU.

        Returns:
            The keys of those that may be being started.
        """
        for key in node.grants:
            if node.containers[key].has_id:
                self.send(key, node.topology.cpus)
        return unseen_starts(node)

    def create(self, key: str) -> None:
        """A create for the place *key* is decided, and sent after that."""
        self._change(key).creates += 1

    def end_create(self, key: str) -> None:
        """One of them has ended; who asks about the place has to begin anew."""
        record = self._change(key)
        record.creates -= 1
        if record.question:
            record.question.set()
        self._rest(key)

    def send(self, key: str, cpus: CpuSet) -> None:
        """An update with *cpus* is about to be sent."""
        self._change(key).sent_cpus |= cpus

    def has_read(self, key: str) -> None:
        """The cgroup of *key* was read, or an update was answered that has none yet."""
        if self.is_unread(key):
            self._change(key).sent_cpus = NO_CPUS
            self._rest(key)
            self.read()

    def start(self, key: str, event: StartEvent) -> None:
        """What `TRANSITIONS` says of *event*; use `lose_start` for one that is unanswered."""
        record = self._change(key)
        record.start = TRANSITIONS[record.start][event]
        if record.start not in _UNKNOWN:  # it has come up by now, or never will: its cgroup says where
            record.sent_cpus, record.start_cpus, record.until_s = record.sent_cpus | record.start_cpus, NO_CPUS, 0.0
        self._rest(key)

    def lose_start(self, node: Node, key: str, until_s: float) -> None:
        """A start of *key* may be in flight of which no answer will come; "not started" is believed after *until_s*.

        It comes up with what was applied before, as far as that is known: updates of ours may be lost meanwhile.
        """
        applied, container, record = node.applied.get(key), node.containers.get(key), self._change(key)
        known = applied if container and container.state is ContainerState.CREATED else None
        record.start_cpus |= known.cpus if known else node.topology.cpus
        record.until_s = until_s
        self.start(key, StartEvent.CUT)

    def stop(self, key: str) -> None:
        """The kubelet has ended *key*, which may be being started."""
        self._change(key).stop_requested = True

    def leave(self, key: str, left: Callable[[], bool] | None) -> None:
        """The runtime was asked for *key*: with *left*, as `_Record.left`, or without processes that it has lost."""
        if not (left and self.is_left(key)):
            record = self._change(key)
            record.left, record.left_s, record.reported = left, monotonic() if left else 0.0, False
            self._rest(key)

    def report(self, key: str) -> bool:
        """Whether *key* is left running and that was not reported yet; from now on it was."""
        is_new = self.is_left(key) and not self._at(key).reported
        if is_new:
            self._change(key).reported = True
        return is_new

    def ask(self, key: str) -> bool:
        """Ask for the outcome of *key*; True if no task does so yet, and the caller has to begin one."""
        record = self._change(key)
        is_new = record.question is None
        self.question(key).set()
        return is_new

    def question(self, key: str) -> asyncio.Event:
        """What wakes the task that asks for *key*."""
        record = self._change(key)
        record.question = record.question or asyncio.Event()
        return record.question

    def is_asked(self, key: str) -> bool:
        """Whether a task asks for the outcome of *key*."""
        return self._at(key).question is not None

    def answered(self, key: str) -> None:
        """That task has ended."""
        self._change(key).question = None
        self._rest(key)

    def retain(self, node: Node) -> None:
        """Forget what counts no more by *node*: the updates of a container without a grant, and all of one that ended.

        One that is only watched, or was released, has no grant either, and its start of unknown outcome goes on.
        """
        for key in [key for key in self._records if key not in node.grants]:
            container = node.containers.get(key)
            if container is None or container.state is ContainerState.EXITED:
                self.start(key, StartEvent.END)
            self.has_read(key)
            self._change(key).stop_requested &= key in node.containers
            if not self.is_left(key):
                self.leave(key, None)
        # What has neither has no CPUs, as when it was new; where nothing is placed, nobody calls `changed`.
        self._touched = {key for key in self._touched if key in self._records or key in node.grants}

    def _at(self, key: str) -> _Record:
        return self._records.get(key, _AT_REST)

    def _change(self, key: str) -> _Record:
        self._touched.add(key)
        return self._records.setdefault(key, _Record())

    def _rest(self, key: str) -> None:
        """Forget *key* if nothing is in flight there."""
        if self._records.get(key) == _AT_REST:
            del self._records[key]


def unseen_starts(node: Node) -> list[str]:
    """The keys of the containers of *node* of which a start may be in flight that criproxy did not see.

    They have a place and an id, and are not known to run or to have ended.
    """
    unsure = (ContainerState.CREATED, ContainerState.UNKNOWN)
    placed = (node.containers[key] for key in node.grants)
    return [each.key for each in placed if each.has_id and each.state in unsure]
