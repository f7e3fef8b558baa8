"""Pure: which NodePolicy is for this node, and what its status says about the rollout."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from criproxy.agent.objects.node_policy import MAX_FAILURES, Failure, NodePolicy, Object, Status
from criproxy.errors import ConfigError
from criproxy.model.text.amounts import counted
from criproxy.model.text.bounded import bounded_text

MOST_CHARACTERS = 300
"""Of why a policy failed on a node."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the NodePolicies of the cluster mean for one node."""

    policy: NodePolicy | None = None
    """The one for this node; None: none selects it."""
    passed_over: tuple[str, ...] = ()
    """The names of others that select the node."""
    names: frozenset[str] = frozenset()
    """Of all NodePolicies, also of those that do not select this node."""
    mistakes: tuple[str, ...] = ()
    """A sentence for each NodePolicy that this version cannot read; those select no node."""
    unreadable: frozenset[str] = frozenset()
    """Their names. What a node has of them it keeps: what they say now is unknown."""

    @property
    def why(self) -> str:
        """Why this one of several, and which cannot be read, as a sentence; empty if there is no other one."""
        parts = [*self.mistakes]
        if self.policy is not None and self.passed_over:
            others = ", ".join(self.passed_over[:3]) + (", …" if len(self.passed_over) > 3 else "")
            chosen = f"NodePolicy {self.policy.name} (priority {self.policy.spec.priority})"
            parts.insert(0, f"{chosen} counts, of those that select this node; the other: {others}")
        return "; ".join(parts)


def choose(objects: Iterable[Object], labels: Mapping[str, str]) -> Choice:
    """Return the NodePolicy of the highest priority that selects a node with these *labels*; of equal ones, by name."""
    names: set[str] = set()
    matching: list[NodePolicy] = []
    mistakes: dict[str, str] = {}
    for each in objects:
        name = str((each.get("metadata") or {}).get("name", ""))
        names.add(name)
        try:
            policy = NodePolicy.read(each)
        except ConfigError as error:
            mistakes[name] = str(error)
            continue
        if policy.spec.node_selector.matches(labels):
            matching.append(policy)
    matching.sort(key=lambda policy: (-policy.spec.priority, policy.name))
    first = matching[0] if matching else None
    rest = tuple(policy.name for policy in matching[1:])
    return Choice(first, rest, frozenset(names), tuple(sorted(mistakes.values())), frozenset(mistakes))


def failures_of(policy: NodePolicy) -> tuple[Failure, ...]:
    """Return the failures of the present spec: those of earlier ones do not count, whatever their hash."""
    now = (policy.generation, policy.hash)
    return tuple(each for each in policy.status.failures if (each.generation, each.hash) == now)


def has_begun(policy: NodePolicy) -> bool:
    """Whether the rollout of the present spec has begun, so that its number of turns is known."""
    begun = policy.status.rollout
    return begun is not None and (begun.generation, begun.hash) == (policy.generation, policy.hash)


def why_stopped(policy: NodePolicy) -> str:
    """Return which failures have stopped the rollout of the present spec, as a sentence; empty: it goes on."""
    failures = failures_of(policy)
    if len(failures) < min(policy.spec.rollout.stop_after_failures, MAX_FAILURES):
        stopped = policy.status.stopped and has_begun(policy)
        return (policy.status.message or "the rollout has stopped") if stopped else ""
    first = failures[0]
    so_far = f"{counted(len(failures), 'failure')}, stopAfterFailures: {policy.spec.rollout.stop_after_failures}"
    return f"the rollout has stopped ({so_far}); {first.node}: {first.text}"


def failure_on(policy: NodePolicy, node: str) -> str:
    """Return why the present spec has failed on *node*; empty: it has not."""
    return next((each.text or "it failed" for each in failures_of(policy) if each.node == node), "")


def is_recorded(policy: NodePolicy, node: str) -> bool:
    """Whether a failure on *node* need not be recorded: it is, or the list is full, so that the rollout has stopped."""
    return bool(failure_on(policy, node)) or len(failures_of(policy)) >= MAX_FAILURES


def with_failure(policy: NodePolicy, node: str, text: str, at: str) -> Status:
    """Return the status of *policy* with one more failure of the present spec; those of earlier ones go first."""
    text = bounded_text(text, MOST_CHARACTERS)
    failure = Failure(node=node, generation=policy.generation, hash=policy.hash, at=at, text=text)
    present = [*failures_of(policy), failure]
    earlier = [each for each in policy.status.failures if each not in present]
    failures = [*earlier, *present][-MAX_FAILURES:]
    status = policy.status.model_copy(update={"failures": failures, "stopped": False, "message": ""})
    why = why_stopped(replace(policy, status=status))
    message = why or f"{node}: {text}; the rollout goes on"
    return status.model_copy(update={"stopped": bool(why) and has_begun(policy), "message": message})
