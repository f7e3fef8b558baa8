"""NodePlacement: what a node reports, one small object for each node; made of what the daemon and the rollout say."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from criproxy import __version__
from criproxy.agent import View, bypass_of
from criproxy.agent.objects.node_policy import Object, Report
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.text.amounts import counted
from criproxy.model.text.bounded import printable

MOST_PROBLEMS = 20
MOST_CHARACTERS = 300
"""Of one sentence."""
MOST_BYTES = 3000
"""Of all problems together, as JSON: with 8 NUMA nodes and 16 cards, the object stays below 10 kB."""
MOST_ROWS = 64
"""NUMA nodes, and rows of devices."""
_OUT_OF_USE = ("Bypassed", "Released")
"""Phases in which no container is placed."""
_LONGEST_LIST = 200
"""Characters of a list of CPUs."""


Phase = Literal["Applied", "Trying", "RolledBack", "Refused", "LastGood", "Released", "Bypassed", "Waiting", "Unknown"]
Answer = Literal["True", "False", "Unknown"]


class PolicyInForce(Report):
    """The policy in effect."""

    name: str = ""
    """The policy, such as topology-aware."""
    source: str = ""
    """Where its options are from: a file of the node, or NodePolicy/NAME."""
    hash: str = ""
    """The first 12 digits of the SHA-256 of these options."""


class RolloutOnNode(Report):
    """How far the NodePolicy that selects the node has come on it."""

    policy: str = ""
    """The NodePolicy."""
    generation: int = 0
    """Of its spec."""
    hash: str = ""
    """Of its policy."""
    phase: str = ""
    """Trying, Applied, RolledBack, Refused, Waiting, or LastGood: the policy file cannot take its place."""
    message: str = ""
    """Why, in a sentence."""


class Cpus(Report):
    """CPUs, counted as the kernel does."""

    capacity: int = 0
    """All."""
    exclusive: int = 0
    """Those that a container has for itself."""
    free: int | None = None
    """Those that could become exclusive, if it is known."""


class NumaCpus(Cpus):
    """CPUs of one NUMA node."""

    list: str = ""
    """Their numbers."""
    available_milli: int | None = None
    """What containers can still request, in thousandths of a CPU, if it is known."""


class Memory(Report):
    """Memory of one NUMA node."""

    capacity_bytes: int = 0
    """All."""
    allocatable_bytes: int = 0
    """What containers may use."""
    available_bytes: int | None = None
    """What no container has requested, if it is known."""


class NumaNode(Report):
    """One NUMA node."""

    id: int
    """Its number."""
    cpus: NumaCpus = NumaCpus()
    """Its CPUs."""
    memory: Memory = Memory()
    """Its memory."""


class Devices(Report):
    """Devices of one resource, and of one profile of vGPUs, on one NUMA node."""

    resource: str
    """As pods request it."""
    numa_node: int | None = None
    """Where the devices are, if it is known."""
    profile: str = ""
    """The profile of the vGPUs; empty: no vGPUs."""
    total: int = 0
    """All."""
    allocated: int = 0
    """Those that containers have."""
    free: int = 0
    """Those that containers can get; the others are unhealthy."""


class Versions(Report):
    """Versions of the programs on the node."""

    criproxy: str = ""
    """The daemon."""
    agent: str = ""
    """The agent that wrote this."""
    runtime: str = ""
    """The container runtime and its version."""


class PlacementStatus(Report):
    """What the node reports."""

    phase: Phase
    """Which configuration is in effect. Applied: the wished one. Trying: the wished one, for the time of its try.
    Waiting: the node waits for its turn. RolledBack: the try failed, and the former one is back. Refused: the daemon
    refuses the wished one. LastGood: the policy file cannot be used, and the last good one is in effect. Released: no
    container is placed, on request. Bypassed: calls pass without criproxy. Unknown: the daemon does not answer."""
    message: str = ""
    """Why, in a sentence."""
    ready: Answer
    """Whether the kubelet goes through criproxy, containers are placed, and no NodePolicy is refused or unreadable."""
    problems: tuple[str, ...] = ()
    """What `criproxy status --check` says: at most 20 problems, and the beginning of each."""
    policy: PolicyInForce = PolicyInForce()
    """The policy in effect."""
    rollout: RolloutOnNode = RolloutOnNode()
    """How far the NodePolicy that selects the node has come on it."""
    cpus: Cpus = Cpus()
    """CPUs of the node."""
    numa_nodes: tuple[NumaNode, ...] = ()
    """NUMA nodes, at most 64."""
    devices: tuple[Devices, ...] = ()
    """Accelerators, at most 64 rows."""
    versions: Versions = Versions()
    """Versions of the programs on the node."""
    last_call: str = ""
    """When the kubelet had called last (RFC 3339) when this was written."""
    observed_at: str = ""
    """When this was written (RFC 3339): at each change, and every ten minutes."""


@dataclass(frozen=True, slots=True)
class RolloutState:
    """What the rollout of a NodePolicy does on this node; all empty: no NodePolicy selects it."""

    policy_name: str = ""
    """Of the NodePolicy that selects this node."""
    generation: int = 0
    """Of its spec."""
    hash: str = ""
    """Of its policy."""
    phase: Phase | Literal[""] = ""
    """Applied, Trying, RolledBack, Refused or Waiting; LastGood: the policy file cannot take its place; "" if no
    NodePolicy selects the node."""
    message: str = ""
    """Why, in a sentence."""


def status_of(view: View, rollout: RolloutState, problem: str = "", wrong: Sequence[str] = ()) -> Object:
    """The status without *observedAt*, which whoever writes it adds.

    Args:
        view: the last answer of the daemon.
        rollout: what the rollout does.
        problem: why the daemon does not answer now; then numbers are those of its last answer.
        wrong: what the agent has told the daemon that is wrong, such as a refused NodePolicy; *view* is without that.
    """
    phase, message = _phase(view, rollout, problem)
    configuration, runtime = view.get("configuration") or {}, view.get("runtime") or {}
    numa_nodes = [*map(_numa_node, view.get("numa_nodes", ())[:MOST_ROWS])]
    status = PlacementStatus(
        phase=phase,
        message=brief(message),
        ready="Unknown" if problem else "False" if view.get("ready") or wrong or phase in _OUT_OF_USE else "True",
        problems=_problems([problem] if problem else _by_turns(view, wrong)),
        policy=PolicyInForce(
            name=view.get("policy") or "",
            source=brief(configuration.get("file") or ""),
            hash=configuration.get("hash") or "",
        ),
        rollout=_rollout(rollout),
        cpus=_sum(numa_nodes),
        numa_nodes=tuple(numa_nodes),
        devices=tuple(_devices(view.get("devices") or ())),
        versions=Versions(
            criproxy=view.get("version") or "",
            agent=__version__,
            runtime=brief(f"{runtime.get('name') or ''} {runtime.get('version') or ''}".strip()),
        ),
        last_call=(view.get("kubelet") or {}).get("last_call") or "",
    )
    made: Object = _without_blanks(status.as_object())
    return made


def status_without_daemon(before: Mapping[str, Any], problem: str) -> Object:
    """The status while the daemon has not answered since the agent started: *before* is what was written last."""
    unknown = PlacementStatus(phase="Unknown", ready="Unknown", message=brief(problem), problems=(brief(problem),))
    told = unknown.model_dump(include={"phase", "ready", "message", "problems"}, mode="json")
    return {key: value for key, value in before.items() if key != "observedAt"} | told


def _phase(view: View, rollout: RolloutState, problem: str) -> tuple[Phase, str]:
    bypass, trial = bypass_of(view), (view.get("configuration") or {}).get("try") or {}
    message = rollout.message
    cases: tuple[tuple[bool, Phase, str], ...] = (
        (bool(problem), "Unknown", problem),
        (bool(bypass), "Bypassed", bypass.get("reason") or ""),
        (bool(view.get("released")), "Released", view.get("released") or ""),
        (rollout.phase not in ("", "Applied"), rollout.phase or "Applied", message),
        (bool(view.get("last_good")), "LastGood", message or "the policy file cannot be used: see the problems"),
        (bool(trial), "Trying", message or f"until {trial.get('until')}"),
    )
    return next(((phase, text) for holds, phase, text in cases if holds), ("Applied", message))


def _rollout(rollout: RolloutState) -> RolloutOnNode:
    """It is never left out: Kubernetes 1.20 makes null of an object of which the last field goes, and refuses that."""
    return RolloutOnNode(
        policy=rollout.policy_name,
        generation=rollout.generation,
        hash=rollout.hash,
        phase=rollout.phase,
        message=brief(rollout.message),
    )


def _by_turns(view: View, wrong: Sequence[str]) -> list[str]:
    """The problems, the first of each kind first: many of one kind, which a tenant can bring about, hide no other."""
    kinds = {str(each["text"]): str(each["kind"]) for each in view.get("found") or ()}
    kinds |= dict.fromkeys(wrong, "node-policy")
    seen = Counter[str]()
    ranked = list[tuple[int, str]]()
    for text in (*map(str, view.get("problems") or ()), *wrong):
        kind = kinds.get(text, "")
        ranked.append((seen[kind], text))
        seen[kind] += 1
    return [text for _, text in sorted(ranked, key=lambda each: each[0])]


def _problems(problems: Sequence[str]) -> tuple[str, ...]:
    """The first problems, as many as there is room for, each cut, and how many more there are."""
    shown, left_bytes = list[str](), MOST_BYTES
    for each in map(brief, problems[:MOST_PROBLEMS]):
        left_bytes -= len(each.encode())
        if left_bytes < 0 or (len(shown) == MOST_PROBLEMS - 1 and len(problems) > MOST_PROBLEMS):
            break
        shown.append(each)
    more = len(problems) - len(shown)
    return (*shown, f"and {counted(more, 'more problem')}") if more else tuple(shown)


def _numa_node(numa: View) -> NumaNode:
    cpus, memory = numa["cpus"], numa["memory"]
    known = cpus.get("available_milli") is not None
    return NumaNode(
        id=numa["id"],
        cpus=NumaCpus(
            capacity=cpus["count"],
            exclusive=len(parse_cpuset(cpus["exclusive"])),
            free=len(parse_cpuset(cpus["exclusive_free"])) if known else None,
            list=brief(cpus["list"], _LONGEST_LIST),
            available_milli=cpus["available_milli"],
        ),
        memory=Memory.model_validate({key: memory.get(key) for key in Memory.model_fields}),
    )


def _sum(numa_nodes: Sequence[NumaNode]) -> Cpus:
    free = [each.cpus.free for each in numa_nodes if each.cpus.free is not None]
    return Cpus(
        capacity=sum(each.cpus.capacity for each in numa_nodes),
        exclusive=sum(each.cpus.exclusive for each in numa_nodes),
        free=sum(free) if len(free) == len(numa_nodes) else None,
    )


def _devices(devices: Sequence[View]) -> Iterator[Devices]:
    for each in devices[:MOST_ROWS]:
        yield Devices.model_validate({name: each.get(name) for name in Devices.model_fields})


def _without_blanks(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Leave empty texts out: they say no more than a field that is not there, and objects are to be small."""
    if isinstance(value, list):
        return [_without_blanks(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_blanks(each) for key, each in value.items() if each != ""}


def brief(text: str, limit: int = MOST_CHARACTERS) -> str:
    """The beginning of *text*, on one line, and '…' if it is longer; texts of tenants may be in it."""
    line = printable(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"
