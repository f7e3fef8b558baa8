"""The steps of scenario files: each kind is a function that reads one and answers with a value for the runner."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from criproxy.config.mistakes import did_you_mean
from criproxy.model.planned import Amounts, PodPlan
from criproxy.model.text.amounts import parse_seconds
from criproxy.model.workload import QosClass
from criproxy.simulate.scenario.assertions import RULES, Assertion, read_assertion
from criproxy.simulate.scenario.place import At
from criproxy.simulate.scenario.pods import POD_KEYS, SIZE_KEYS, read_pods, read_resize
from criproxy.simulate.scenario.settings import Configuration

OUTCOMES = ("ok", "error")


@dataclass(frozen=True, slots=True)
class Start:
    """The policy starts anew, without containers."""

    configuration: Configuration
    fails: bool


@dataclass(frozen=True, slots=True)
class Create:
    """A pod comes, and its containers one after the other."""

    pod: PodPlan
    fails: bool
    error: str
    """A part of the sentence with which it is refused; empty for any."""


@dataclass(frozen=True, slots=True)
class Resize:
    """A running container gets another size."""

    container: str
    qos: QosClass
    amounts: Amounts
    fails: bool
    error: str
    """As in `Create`."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Pods end and are removed."""

    pods: tuple[str, ...]
    """Empty for all."""


@dataclass(frozen=True, slots=True)
class Expect:
    """What has to hold now."""

    assertions: tuple[Assertion, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Time passes."""

    seconds: float


Action = Start | Create | Resize | Delete | Expect | Advance


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    line: int
    only: str
    """The rules by which it is taken; empty for all."""
    action: Action


@dataclass(slots=True)
class Reading:
    """What is known while the steps of one vector are read in order."""

    policy: str
    file: Path
    containers: dict[str, str] = field(default_factory=dict)
    """The pod of every container that was there so far."""
    pods: set[str] = field(default_factory=set)
    """Those that are there now."""
    sizes: dict[str, tuple[QosClass, Amounts]] = field(default_factory=dict)
    """The size that each container has by now, and the class of its pod."""

    def steps(self, at: At) -> Iterator[Step]:
        """The steps at *at*, one of which may be several here; raises Wrong."""
        for item in at.items():
            fields = item.entries()
            kinds = [key for key in fields if key not in ("only", "note")]
            if not kinds and "note" in fields:
                continue
            if len(kinds) != 1 or kinds[0] not in STEPS:
                near = did_you_mean(kinds[0], STEPS) if len(kinds) == 1 else ""
                named = " and ".join(map(repr, kinds)) or "nothing"
                raise item.wrong(
                    f"a step is one of {', '.join([*STEPS, 'note'])}, and this is {named}{near}", of_key=True
                )
            inner = fields[kinds[0]]
            within = inner.data if isinstance(inner.data, dict) else {}
            only = fields.get("only") or (inner.entries()["only"] if "only" in within else None)
            for action in STEPS[kinds[0]](self, inner):
                yield Step(inner.line, only.one_of(RULES) if only else "", action)

    def start(self, at: At) -> Iterator[Action]:
        """`start`: a new configuration."""
        fields = at.fields(("config", "policy", "expect", "only", "note"))
        self.pods.clear()
        policy = fields["policy"].text() if "policy" in fields else self.policy
        yield Start(Configuration(policy, fields.get("config"), at, self.file), _fails(fields))

    def create(self, at: At) -> Iterator[Action]:
        """`create`: one pod."""
        fields = at.fields((*POD_KEYS, "expect", "error", "only", "note"), required=("pod",))
        yield self._created(at, read_pods(at, fields), fields)

    def create_n(self, at: At) -> Iterator[Action]:
        """`create_n`: several alike, numbered from 0."""
        known = tuple(key for key in POD_KEYS if key != "pod")
        fields = at.fields((*known, "n", "prefix", "expect", "error", "only", "note"), required=("n", "prefix"))
        for number in range(fields["n"].number(1)):
            name = f"{fields['prefix'].text()}{number}"
            yield self._created(at, read_pods(at, {**fields, "pod": replace(fields["prefix"], data=name)}), fields)

    def _created(self, at: At, pod: PodPlan, fields: dict[str, At]) -> Create:
        only = "only" in fields  # the other rules may have a pod of this name
        if pod.name in self.pods and not only:
            raise at.wrong(f"there is a pod {pod.name} already: delete it first, or give this one another name")
        self.pods.add(pod.name)
        for container in pod.containers:
            owner = self.containers.setdefault(container.name, pod.name)
            if owner != pod.name:
                raise at.wrong(f"the pod {owner} has a container {container.name}, too: names must differ")
            self.sizes[container.name] = pod.qos, container.amounts
        return Create(pod, _fails(fields), fields["error"].text() if "error" in fields else "")

    def resize(self, at: At) -> Iterator[Action]:
        """`resize`: one container."""
        fields = at.fields(("c", *SIZE_KEYS, "expect", "error", "only", "note"), required=("c",))
        name = fields["c"].text()
        if self.containers.get(name) not in self.pods:
            raise fields["c"].wrong(f"there is no container {name!r} now{did_you_mean(name, self.containers)}")
        qos, before = self.sizes[name]
        amounts, fails = read_resize(at, fields, qos, before), _fails(fields)
        if not fails:
            self.sizes[name] = qos, amounts
        yield Resize(name, qos, amounts, fails, fields["error"].text() if "error" in fields else "")

    def delete(self, at: At) -> Iterator[Action]:
        """`delete`: pods by name, or all."""
        if at.data == "all":
            self.pods.clear()
            yield Delete(())
            return
        names = (at.text(),) if isinstance(at.data, str) else at.texts()
        for name in names:
            if name not in self.pods:
                raise at.wrong(f"there is no pod {name!r} now{did_you_mean(name, self.pods)}")
        self.pods -= set(names)
        yield Delete(names)

    def expect(self, at: At) -> Iterator[Action]:
        """`expect`: a list of assertions, or one."""
        entries = [at] if isinstance(at.data, dict) else list(at.items())
        assertions = tuple(read_assertion(entry) for entry in entries)
        for entry, assertion in zip(entries, assertions, strict=True):
            for name in assertion.containers:
                if name not in self.containers:
                    raise entry.wrong(
                        f"no step so far creates a container {name!r}{did_you_mean(name, self.containers)}"
                    )
        yield Expect(assertions)

    def advance(self, at: At) -> Iterator[Action]:
        """`advance`: a duration such as 11s."""
        yield Advance(at.read(parse_seconds))


STEPS: dict[str, Callable[[Reading, At], Iterator[Action]]] = {
    "start": Reading.start,
    "create": Reading.create,
    "create_n": Reading.create_n,
    "resize": Reading.resize,
    "delete": Reading.delete,
    "expect": Reading.expect,
    "advance": Reading.advance,
}


def _fails(fields: dict[str, At]) -> bool:
    return "expect" in fields and fields["expect"].one_of(OUTCOMES) == "error"
