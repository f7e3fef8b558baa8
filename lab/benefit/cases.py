"""What is measured: workloads, their neighbours, and who manages the CPUs. Pure.

A case is one workload beside one kind of neighbour. Within a case, only the manager differs: containers, cgroups,
neighbours and their order are the same.
"""

from dataclasses import dataclass, replace

MIB = 1 << 20
WORK, BATCH = "work", "batch"
"""Namespaces of workloads and of neighbours."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The figure of a workload; less is better."""

    name: str
    unit: str
    title: str


PER_IMAGE = Metric("training_time", "s per 1000 images", "training time")
P99 = Metric("p99_latency", "ms", "p99 latency")
PER_READ = Metric("time_per_read", "ns", "time per random read")
PER_GB = Metric("time_per_gb", "s per GB", "time per GB moved")
PER_MB = Metric("time_per_mb", "s per 100 MB", "time per 100 MB compressed")


@dataclass(frozen=True, slots=True)
class Workload:
    """What a user wants to be fast."""

    name: str
    title: str
    module: str
    """Its program in `lab.benefit.programs`."""
    metric: Metric
    scale: float
    """The figure is so many times seconds per amount."""
    request_milli: int = 1000
    limit_milli: int = 1000
    """0: none, and the pod is Burstable."""
    memory_bytes: int = 2048 * MIB
    needs: str = ""
    """A Python module that must be there; ``redis``: that program; empty: nothing beside Python."""
    digits: bool = False
    """Whether its program wants the images."""
    is_service: bool = False
    """Whether it answers requests, and is measured from outside."""
    is_erratic: bool = False
    """Whether its figure without a manager differs from run to run beside neighbours that always do the same.

    So it is with threads that spin: the time that they lose depends on when the neighbours take which CPU. The machine
    is judged by the neighbours then, and the intervals say how far the figures differ.
    """


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What else runs on the node."""

    name: str
    title: str
    kind: str = ""
    count: int = 0
    request_milli: int = 0
    """Of each of their workers; 0: the pods are BestEffort."""
    workers: int = 1
    """Processes of each."""


@dataclass(frozen=True, slots=True)
class Manager:
    """Who decides where containers run."""

    name: str
    title: str
    policy: str = ""
    """The policy file of criproxy; empty: the kubelet speaks with the runtime itself."""
    lifts_pods: bool = False
    """Whether Guaranteed pods have no quota either, which only the kubelet can do."""


NOBODY = Manager("none", "no manager")
KUBELET = Manager(
    "kubelet-static",
    "kubelet's static CPU manager (as criproxy's static sets it, quota kept)",
    'policy: static\nreservedCpus: "0"\n',
)
STATIC_LIFT = Manager(
    "static-lift", "criproxy static, quota lifted", 'policy: static\nreservedCpus: "0"\ncpuQuota: lift\n'
)
KUBELET_LIFT = Manager(
    "kubelet-static-1.33",
    "kubelet's static CPU manager since 1.33, quotas of container and pod lifted",
    STATIC_LIFT.policy,
    lifts_pods=True,
)
TOPOLOGY_AWARE = Manager(
    "topology-aware", "criproxy topology-aware", 'policy: topology-aware\nreservedCpus: "0"\ncpuQuota: keep\n'
)
TOPOLOGY_AWARE_LIFT = Manager(
    "topology-aware-lift",
    "criproxy topology-aware, quota lifted",
    'policy: topology-aware\nreservedCpus: "0"\ncpuQuota: lift\n',
)
_BALLOONS = f"""policy: balloons
cpuQuota: {{quota}}
balloonTypes:
  - name: batch
    namespaces: [{BATCH}]
    minBalloons: 1
    maxBalloons: 1
    minCPUs: 1
  - name: work
    namespaces: [{WORK}]
    preferNewBalloons: true
"""
"""The balloon of batch pods exists from the start, so that it has the first CPU, as shared pods have elsewhere."""
BALLOONS = Manager("balloons", "criproxy balloons", _BALLOONS.format(quota="keep"))
BALLOONS_LIFT = Manager("balloons-lift", "criproxy balloons, quota lifted", _BALLOONS.format(quota="lift"))
MANAGERS = (NOBODY, KUBELET, KUBELET_LIFT, STATIC_LIFT, TOPOLOGY_AWARE, TOPOLOGY_AWARE_LIFT, BALLOONS, BALLOONS_LIFT)

TENSORFLOW = Workload(
    "cnn-tensorflow",
    "training of a small CNN, TensorFlow",
    "cnn_tensorflow",
    PER_IMAGE,
    1000,
    needs="tensorflow",
    digits=True,
)
PYTORCH = Workload(
    "cnn-pytorch",
    "training of a small CNN, PyTorch",
    "cnn_pytorch",
    PER_IMAGE,
    1000,
    needs="torch",
    digits=True,
    is_erratic=True,
)
REDIS = Workload("redis", "redis, Guaranteed pod of 1 CPU", "redis", P99, 1, needs="redis", is_service=True)
REDIS_BURSTABLE = Workload(
    "redis-burstable",
    "redis, Burstable pod that requests 500m",
    "redis",
    P99,
    1,
    request_milli=500,
    limit_milli=0,
    needs="redis",
    is_service=True,
)
CHASE = Workload("chase", "random reads of memory, numpy", "chase", PER_READ, 1e3, needs="numpy")
STREAM = Workload("stream", "memory bandwidth, numpy", "stream", PER_GB, 1, needs="numpy")
COMPRESS = Workload("compress", "parallel compression", "compress", PER_MB, 100)
WORKLOADS = (TENSORFLOW, PYTORCH, REDIS, REDIS_BURSTABLE, STREAM, COMPRESS)

ALONE = Neighbours("alone", "nothing")
BUSY = Neighbours("busy", "four busy loops", "busy", 4, 225)
WEB = Neighbours("web", "four bursty web workers", "bursty", 4, 225)
THRASHERS = Neighbours("thrashers", "four cache thrashers", "thrasher", 4, 225)
BACKUP = Neighbours("batch", "four BestEffort compressions", "batch", 4, 0)
NEIGHBOURS = (ALONE, BUSY, WEB, THRASHERS, BACKUP)


_ERRATIC = frozenset({f"{REDIS.name}/{BUSY.name}"})
"""Cases whose figure without a manager differs from run to run, although the workload is not erratic beside others.

So it is with redis beside busy loops: in three runs, the p99 latency differed by 82 % to 203 % between rounds, while
the loops did the same work. Beside web workers, it differed by 4 %. Loops never sleep: presumably, a request waits the
longer, the more of them the kernel has put on the CPU of redis.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload beside neighbours, under several managers; the first one is compared with."""

    workload: Workload
    neighbours: Neighbours
    managers: tuple[Manager, ...]

    @property
    def name(self) -> str:
        """Names it in reports."""
        return f"{self.workload.name}/{self.neighbours.name}"

    @property
    def is_judged_by_neighbours(self) -> bool:
        """Whether the noise check compares what the neighbours do, in place of the figures without a manager."""
        return (self.workload.is_erratic or self.name in _ERRATIC) and self.neighbours.count > 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run."""

    cases: tuple[Case, ...]
    rounds: int = 7
    seconds: float = 6.0
    """How long a workload is measured in each round."""
    has_figures: bool = True
    """Whether its figures mean anything."""
    seed: int = 1

    @property
    def duration_s(self) -> float:
        """How long it takes, roughly: starting containers takes as long as measuring."""
        return 2 * self.seconds * self.rounds * sum(len(case.managers) for case in self.cases)


DEFAULT = Plan(
    (
        Case(TENSORFLOW, BUSY, (NOBODY, KUBELET, TOPOLOGY_AWARE)),
        Case(PYTORCH, BUSY, (NOBODY, KUBELET, TOPOLOGY_AWARE)),
        Case(REDIS, WEB, (NOBODY, KUBELET, TOPOLOGY_AWARE)),
        Case(REDIS_BURSTABLE, WEB, (NOBODY, KUBELET, BALLOONS)),
        Case(STREAM, THRASHERS, (NOBODY, KUBELET, TOPOLOGY_AWARE)),
        Case(COMPRESS, BACKUP, (NOBODY, KUBELET, TOPOLOGY_AWARE)),
    )
)
FULL = Plan(tuple(Case(workload, neighbours, MANAGERS) for workload in WORKLOADS for neighbours in NEIGHBOURS))
QUICK = Plan(
    (Case(COMPRESS, BUSY, (NOBODY, KUBELET, BALLOONS)),),
    rounds=2,
    seconds=0.3,
    has_figures=False,
)


def for_machine(plan: Plan, cpus: int, numa_nodes: int) -> Plan:
    """*plan* as it is measured on a machine of that size.

    Neighbours ask for everything that the workload and the kubelet's reserve leave, on any machine. With several NUMA
    nodes, there are cases in which memory can be remote.
    """
    workers = max(1, cpus - 1)
    numa = (
        Case(CHASE, BUSY, (NOBODY, KUBELET, TOPOLOGY_AWARE)),
        Case(STREAM, BUSY, (NOBODY, KUBELET, TOPOLOGY_AWARE)),
    )
    cases = (*plan.cases, *(numa if numa_nodes > 1 and plan.has_figures else ()))
    unique = {case.name: case for case in reversed(cases)}
    return replace(
        plan,
        cases=tuple(
            replace(case, neighbours=replace(case.neighbours, workers=workers)) for case in reversed(unique.values())
        ),
    )


def chosen(plan: Plan, prefixes: tuple[str, ...]) -> tuple[Case, ...]:
    """The cases of *plan* whose names begin with one of *prefixes*; empty: all.

    Raises:
        ValueError: there are no such cases.
    """
    cases = tuple(case for case in plan.cases if not prefixes or case.name.startswith(prefixes))
    if not cases:
        raise ValueError(f"no case begins with {' or '.join(prefixes)}")
    return cases
