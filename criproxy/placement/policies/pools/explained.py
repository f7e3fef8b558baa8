"""The pools of one kind that were compared for a container, and what those without room lack."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from criproxy.model.cpuset import numbered
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.alloc.rank import Candidate, Criterion, Unit, ranked
from criproxy.placement.policies.candidates import Candidates, Row, compared
from criproxy.placement.policies.pools.plan import Instance
from criproxy.placement.policies.pools.room import Alone, has_room

OF = "pools"


@dataclass(frozen=True, slots=True)
class Among:
    """The search of a container for a pool among those of a kind, which pods share."""

    kind: Sequence[Instance]
    node: Node
    container: Container
    pods: Mapping[str, Collection[str]]
    """Those in each pool, by its name."""

    def candidate(self, index: int, instance: Instance) -> Candidate:
        """A pool of the kind; the default pool, where none of the kind was taken, comes after these."""
        old = self.node.grants.get(self.container.key)
        there = self.pods.get(instance.name, ())
        return Candidate(
            index,
            instance.name,
            (
                Criterion("other containers of its pod are there", int(self.container.pod not in there)),
                Criterion("it is already there", int(old is None or old.pool != instance.name)),
                *self._filling(len(there)),
            ),
        )

    def _filling(self, pods: int) -> Sequence[Criterion]:
        match self.kind[0].kind.fill_order:
            case "Balanced":
                return (Criterion("it has fewer pods", pods, Unit.FEWER),)
            case "Packed":
                return (Criterion("it has more pods", -pods, Unit.MORE),)
            case _:
                return ()


def shared_compared(among: Among, chosen: Instance, why: str) -> Candidates:
    """The pools of a kind that pods share, and the default pool where none of them was taken."""
    instances = list(among.kind) + ([] if chosen in among.kind else [chosen])
    room = [each is chosen or has_room(each, among.pods, among.container) for each in instances]
    order = ranked(among.candidate(index, each) for index, each in enumerate(instances) if room[index])
    full = [Row(each.name, lacks=_full(each)) for each, has in zip(instances, room, strict=True) if not has]
    return compared(OF, order, full, note=why)


def all_exclusive(kind: Sequence[Instance], why: str) -> Candidates:
    """The pools of a kind that pods share, where all CPUs are exclusive since an earlier policy."""
    return compared(OF, (), [Row(each.name, lacks="a CPU that is not exclusive") for each in kind], note=why)


def alone_compared(alone: Alone, kind: Sequence[Instance], why: str) -> Candidates:
    """The pools of a kind each of which is for one container alone."""
    order = ranked(_own(alone, index, each) for index, each in enumerate(kind) if alone.may_have(each))
    taken = [Row(each.name, lacks=_taken(alone, each)) for each in kind if not alone.may_have(each)]
    return compared(OF, order, taken, note=why)


def _own(alone: Alone, index: int, instance: Instance) -> Candidate:
    other, far = alone.order(instance)
    criteria = Criterion("it is already there", int(other)), Criterion("it is next to its pod", int(far))
    return Candidate(index, instance.name, criteria)


def _full(instance: Instance) -> str:
    most = instance.kind.max_pods
    return f"room for another pod: it has {most}, as many as maxPods allows" if most > 0 else "room: it is for no pod"


def _taken(alone: Alone, instance: Instance) -> str:
    if taken := instance.cpus & alone.taken:
        return numbered("CPU", taken)
    return "a CPU for shared containers"
