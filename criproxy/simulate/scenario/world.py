"""A node and its policy while the steps of a scenario are taken: the events that the daemon would have."""

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from criproxy.config.settings import Settings
from criproxy.errors import ConfigError, Refused
from criproxy.model.machine.hardware import HugePages
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.planned import ContainerPlan, PodPlan, seen_sizes
from criproxy.model.workload import Pod
from criproxy.placement import events
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.options.pod_wishes import cold_start_s
from criproxy.placement.policies.api import Policy
from criproxy.simulate.scenario.assertions import Assertion
from criproxy.simulate.scenario.place import ExpectedPools
from criproxy.simulate.scenario.seen import Moment, Placed, Seen
from criproxy.simulate.scenario.settings import Configuration, Unusable, settings
from criproxy.simulate.scenario.steps import Advance, Create, Delete, Expect, Resize, Start, Step


@dataclass(frozen=True, slots=True)
class Told:
    """What the policy said at one step."""

    line: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A container for which the policy was to find a place."""

    line: int
    before: Node
    event: events.ContainerCreating
    policy: Policy
    refused: bool


class Failure(Exception):
    """Something is not as the scenario expects it."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


SettingsOf = Callable[[Configuration, str, Topology], Settings]
"""What a policy starts with: what a configuration says by some rules on a machine; raises ConfigError."""


@dataclass(slots=True)
class World:
    """A node and its policy while steps are taken."""

    topology: Topology
    rules: str
    settings_of: SettingsOf | None = None
    """Of the policy to use in place of every other; then nobody expects of a start that it fails."""
    huge_pages: tuple[HugePages, ...] = ()
    """Of the machine; none that a container uses is missing there."""
    told: list[Told] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    checked: int = 0
    moments: list[Moment] = field(default_factory=list)
    """At each step that expects something and at the end, where something has happened since the one before."""
    _happened: list[str] = field(default_factory=list)
    _node: Node = field(init=False)
    _policy: Policy | None = None
    _keys: dict[str, str] = field(default_factory=dict)
    """The key of each container that is there, by name."""
    _clock_s: float = 0.0
    _warm_at_s: dict[str, float] = field(default_factory=dict)
    """When the cold start of a container is over."""
    _line: int = 0
    _serial: int = 0

    def __post_init__(self) -> None:
        self._node = Node(self.topology)

    def take(self, each: Step) -> None:
        """Take one step; raises Failure."""
        self._line = each.line
        match each.action:
            case Start(configuration, fails):
                self._happened.append("the policy restarts")
                self._restart(configuration, fails=fails)
            case Create():
                self._create(each.action)
            case Resize():
                self._resize(each.action)
            case Delete(pods):
                names = pods or [pod.name for pod in self._node.pods.values()]
                self._happened += [f"{name} ends" for name in names]
                self._delete(names)
            case Expect(assertions):
                self.note()
                self._expect(assertions)
            case Advance(seconds):
                self._happened.append(f"{seconds:g} s pass")
                self._pass_time(seconds)

    def note(self) -> None:
        """Keep where everybody is now, if something has happened since the last time."""
        if self._happened:
            self.moments.append(Moment(tuple(self._happened), self.seen().placed))
            self._happened.clear()

    def start(self, configuration: Configuration, line: int) -> None:
        """A policy without containers; raises Failure."""
        settings_of = self.settings_of or settings
        try:
            self._policy = settings_of(configuration, self.rules, self.topology).build_policy()
        except ConfigError as error:
            place = error.line if isinstance(error, Unusable) else 0
            raise Failure(f"the policy does not start: {error}", place or line) from None
        self._node = Node(self.topology)
        self._keys.clear()

    def seen(self) -> Seen:
        """Where everybody is: who is not kept to anything may be everywhere."""
        everywhere = Placed(self.topology.online_cpus, self.topology.mems)
        placed: dict[str, Placed] = {}
        for name, key in self._keys.items():
            grant, pod = self._node.grants.get(key), self._node.containers[key].pod_name
            placed[name] = replace(everywhere, pod=pod)
            if grant:
                placed[name] = Placed(grant.cpus, grant.mems or everywhere.mems, grant.exclusive, grant.pool, pod)
        return Seen(self.topology, placed)

    def expect_pools(self, expected: ExpectedPools) -> None:
        """The pools of the policy before anybody has come; raises Failure."""
        if self._policy is not None and (wrong := expected.wrong_with(self._policy, self.topology)):
            raise Failure(wrong, expected.line)
        self.checked += 1

    def _restart(self, configuration: Configuration, *, fails: bool) -> None:
        fails = fails and self.settings_of is None
        try:
            self.start(configuration, self._line)
        except Failure:
            if not fails:
                raise
            self._node, self._policy = Node(self.topology), None
            self._keys.clear()
            return
        if fails:
            raise Failure("the policy should not start with this configuration, and does", self._line)

    def _create(self, action: Create) -> None:
        self._try(action, action.pod.name, ("placed", "starts"), partial(self._run_pod, action.pod))

    def _resize(self, action: Resize) -> None:
        key = self._keys.get(action.container)
        if key is None:
            raise Failure(f"there is no container {action.container} to resize", self._line)
        event = events.ContainerResized(key, seen_sizes(action.amounts, action.qos, self.topology.capacity_bytes))
        self._try(action, action.container, ("resized", "is resized"), partial(self._apply, event))

    def _try(self, action: Create | Resize, name: str, words: tuple[str, str], do: Callable[[], None]) -> None:
        """Do what *action* says; raises Failure unless it is refused exactly if it should be.

        Args:
            action: says what should come of it.
            name: of whom it is about.
            words: what becomes of that one then, for sentences: ``should be …`` and by itself.
            do: raises Refused.
        """
        done, happens = words
        try:
            do()
        except Refused as error:
            self._happened.append(f"{name} is refused")
            if not action.fails:
                raise Failure(f"{name} should be {done}, and is refused: {error}", self._line) from None
            if action.error.lower() not in str(error).lower():
                text = f"{name} should be refused with {action.error!r}, and the sentence is: {error}"
                raise Failure(text, self._line) from None
            self.told.append(Told(self._line, (f"refused: {error}",)))
            return
        self._happened.append(f"{name} {happens}")
        if action.fails:
            raise Failure(f"{name} should be refused, and is {done}", self._line)

    def _run_pod(self, plan: PodPlan) -> None:
        pod = plan.pod(f"{plan.name}-{self._next()}", plan.name)
        self._apply(events.PodCreated(pod))
        for container in plan.containers:
            self._run_container(pod, container)

    def _run_container(self, pod: Pod, planned: ContainerPlan) -> None:
        reservation, key = f"r{self._next()}", f"{planned.name}-{self._serial}"
        container = planned.container(reservation, pod, self.topology.capacity_bytes)
        pages = tuple(each.beside(self.huge_pages) for each in container.huge_pages)
        self._apply(events.ContainerCreating(replace(container, huge_pages=pages) if pages else container))
        self._keys[planned.name] = key
        self._apply(events.ContainerCreated(reservation, key))
        self._apply(events.ContainerStarted(key))
        cold_s = cold_start_s(pod.annotations, planned.name)
        if cold_s is not None:
            self._warm_at_s[key] = self._clock_s + cold_s
        if planned.init:
            self._apply(events.ContainerExited(key))
            del self._keys[planned.name]

    def _delete(self, names: Iterable[str]) -> None:
        sandboxes = {pod.name: pod.key for pod in self._node.pods.values()}
        for name in names:
            if name not in sandboxes:
                raise Failure(f"there is no pod {name} to delete", self._line)
            containers = self._node.containers_of(sandboxes[name])
            self._apply(events.PodStopped(sandboxes[name]))
            self._apply(events.PodGone(sandboxes[name]))
            for container in containers:
                self._keys.pop(container.name, None)

    def _expect(self, assertions: Iterable[Assertion]) -> None:
        seen = self.seen()
        for assertion in assertions:
            if assertion.only not in ("", self.rules):
                continue
            for name in assertion.containers:
                if name not in seen.placed:
                    raise Failure(f"{name} is not there", assertion.line)
            for check in assertion.checks:
                if wrong := check(seen):
                    raise Failure(wrong, assertion.line)
                self.checked += 1

    def _pass_time(self, seconds: float) -> None:
        """Cold starts end in the order in which they are due."""
        self._clock_s += seconds
        for due_s, key in sorted((due_s, key) for key, due_s in self._warm_at_s.items()):
            if due_s <= self._clock_s:
                del self._warm_at_s[key]
                self._apply(events.ColdStartEnded(key))

    def _apply(self, event: events.Event) -> None:
        if self._policy is None:
            raise Failure("there is no policy: it did not start", self._line)
        try:
            decision = step(self._node, event, self._policy)
        except Refused:
            self._remember(event, self._policy, refused=True)
            raise
        except Exception as error:  # whatever is wrong with a policy, other cases go on
            raise Failure(f"the policy is at fault at {type(event).__name__}: {raised(error)}", self._line) from error
        self._remember(event, self._policy, refused=False)
        self._node = decision.node
        if decision.reasons:
            self.told.append(Told(self._line, decision.sentences))
        if broken := violations(self._node):
            raise Failure(f"after {type(event).__name__} the placement is broken: {'; '.join(broken[:3])}", self._line)

    def _remember(self, event: events.Event, policy: Policy, *, refused: bool) -> None:
        """What has just been decided about a newcomer, for who wants to know how."""
        if isinstance(event, events.ContainerCreating):
            self.asked.append(Asked(self._line, self._node, event, policy, refused))

    def _next(self) -> int:
        self._serial += 1
        return self._serial


def raised(error: Exception) -> str:
    """The exception and where it was raised in the code, such as ``KeyError in policy.py:12: 'web'``."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {last.filename}:{last.lineno}: {error}"
