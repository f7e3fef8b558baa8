"""The input of the views: the node and the state of the controller at one moment, and the arguments of a command."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from criproxy.errors import UsageError
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.text.notices import Notice, Refusal, Trouble, Values
from criproxy.model.workload import Container
from criproxy.placement.policies.api import Free, Policy, free_of

T = TypeVar("T")
UNKNOWN_FRONT: Values = dict.fromkeys(("kubelet", "plugin", "runtime", "configuration", "agent", "controls"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The node and the state of the controller at one moment."""

    node: Node
    policy: str = ""
    """The name of the policy in the policy file; empty if unknown."""
    follows: bool = True
    """Whether calls are held or watched, so that the node knows all containers."""
    reserved: CpuSet = NO_CPUS
    knows_reserved: bool = True
    """Whether it is known which CPUs are reserved, so that it can be said which are free."""
    reserved_later: Mapping[str, CpuSet] = field(default_factory=dict)
    """By pod: CPUs of *reserved* that were already exclusive to it when the policy file began to reserve them."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """Failed updates by container key."""
    starting: Collection[str] = ()
    """Keys of the containers whose start is in flight."""
    notices: Sequence[Notice] = ()
    refusals: Sequence[Refusal] = ()
    """Refused creates, the newest first."""
    refusals_omitted: int = 0
    """How many more there are."""
    resizes: Mapping[str, Refusal] = field(default_factory=dict)
    """Refused resizes, by container key."""
    placer: Policy | None = None
    """The policy in force; None if unknown."""
    lacking: Callable[[], Sequence[str]] = tuple
    """Returns sentences about what the policy file names but the machine does not have; may be slow."""
    front: Values = field(default_factory=lambda: UNKNOWN_FRONT)
    """What calls came, which runtime answers, which policy file is in effect: as in the answer of `status`."""

    @property
    def free(self) -> CpuSet | None:
        """The CPUs that can become exclusive; None if unknown."""
        return self.can_become_exclusive.cpus if self.knows_reserved else None

    @property
    def can_become_exclusive(self) -> Free:
        """The free CPUs, and how many of them together; wrong if it is unknown what is reserved."""
        if self.placer is None:
            return Free(cpus := self.node.free_cpus(self.reserved), len(cpus))
        return free_of(self.placer, self.node)

    @property
    def is_stored(self) -> bool:
        """Whether the disk accepts the state; until then, criproxy stops no container for an incident."""
        return all(notice.kind != "store" for notice in self.notices)


def argument(arguments: Mapping[str, Any], name: str, default: T) -> T:
    """Return an argument of a command; raise UsageError if its type is not that of *default*."""
    value = arguments.get(name, default)
    if type(value) is not type(default):
        raise UsageError(f"{name}: must be a {type(default).__name__}, not {value!r}")
    return value


def identity(container: Container) -> Values:
    """Return the keys that say which container it is."""
    return {
        "id": container.key if container.has_id else "",
        "namespace": container.namespace,
        "pod": container.pod_name,
        "container": container.name,
    }


def in_order(containers: Iterable[Container]) -> list[Container]:
    """Return *containers* as people look for them: by namespace, pod and name, the first attempt first."""
    return sorted(containers, key=lambda c: (c.namespace, c.pod_name, c.name, c.attempt, c.key))
