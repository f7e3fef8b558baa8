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

    unit: str
    title: str


PER_IMAGE = Metric("s per 1000 images", "training time")
P99 = Metric("ms", "p99 latency")
PER_GB = Metric("s per GB", "time per GB moved")
PER_MB = Metric("s per 100 MB", "time per 100 MB compressed")


@dataclass(frozen=True, slots=True)
class Workload:
    """What a user wants to be fast."""

    name: str
    title: str
    module: str
    """Its program in `lab.benefit.programs`; ``redis`` is a service, which answers requests and is measured outside."""
    metric: Metric
    scale: float
    """The figure is so many times seconds per amount."""
    needs: str = ""
    """A Python module that must be there; ``redis``: that program; empty: nothing beside Python."""
    request_milli: int = 1000
    limit_milli: int = 1000
    """0: none, and the pod is Burstable."""
    at_once: int = 1
    """How many requests a service gets at the same moment."""
    is_erratic: bool = False
    """Whether its figure without a manager differs from run to run beside neighbours that always do the same.

    So it is with threads that spin: the time that they lose depends on when the neighbours take which CPU. The machine
    is judged by the neighbours then, and the intervals say how far the figures differ.
    """


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Four pods that run beside it."""

    name: str
    title: str
    kind: str
    request_milli: int = 225
    """Of each of their workers; 0: the pods are BestEffort."""


@dataclass(frozen=True, slots=True)
class Manager:
    """Who decides where containers run."""

    name: str
    title: str
    policy: str = ""
    """The policy file of criproxy; empty: the kubelet speaks with the runtime itself."""
    has_classes: bool = False
    """Whether `criproxy controls` runs, too."""


NOBODY = Manager("none", "no manager")
KUBELET = Manager(
    "kubelet-static",
    "kubelet's static CPU manager (as criproxy's static sets it, quota kept)",
    'policy: static\nreservedCpus: "0"\n',
)
TOPOLOGY_AWARE = Manager(
    "topology-aware", "criproxy topology-aware", 'policy: topology-aware\nreservedCpus: "0"\ncpuQuota: keep\n'
)
# The balloon of batch pods exists from the start, so that it has the first CPU, as shared pods have elsewhere.
_BALLOONS = f"""policy: balloons
cpuQuota: keep
balloonTypes:
  - {{name: batch, namespaces: [{BATCH}], minBalloons: 1, maxBalloons: 1, minCPUs: 1}}
  - {{name: work, namespaces: [{WORK}], preferNewBalloons: true}}
"""
BALLOONS = Manager("balloons", "criproxy balloons", _BALLOONS)
BURST = Manager(
    "burst",
    "criproxy topology-aware, class with burst: 100%",
    f"{TOPOLOGY_AWARE.policy}classes: {{work: {{for: {{namespaces: [{WORK}]}}, cpu: {{burst: 100%}}}}}}\n",
    has_classes=True,
)
LATE_BATCH = Manager(
    "batch-class",
    "criproxy topology-aware, neighbours with the scheduling policy batch",
    f"{TOPOLOGY_AWARE.policy}classes: {{batch: {{for: {{namespaces: [{BATCH}]}}, scheduling: {{policy: batch}}}}}}\n",
    has_classes=True,
)
_PINNED = (NOBODY, KUBELET, TOPOLOGY_AWARE)

_TRAINING = "training of a small CNN"
TENSORFLOW = Workload(
    "cnn-tensorflow", f"{_TRAINING}, TensorFlow", "cnn_tensorflow", PER_IMAGE, 1000, needs="tensorflow"
)
PYTORCH = Workload(
    "cnn-pytorch", f"{_TRAINING}, PyTorch", "cnn_pytorch", PER_IMAGE, 1000, needs="torch", is_erratic=True
)
REDIS = Workload("redis", "redis, Guaranteed pod of 1 CPU", "redis", P99, 1, needs="redis")
REDIS_BURSTABLE = replace(
    REDIS, name="redis-burstable", title="redis, Burstable pod that requests 500m", request_milli=500, limit_milli=0
)
REDIS_LIMITED = replace(
    REDIS,
    name="redis-limited",
    title="redis, limit of 20m, 750 requests at once",
    request_milli=20,
    limit_milli=20,
    at_once=750,
)
STREAM = Workload("stream", "memory bandwidth, numpy", "stream", PER_GB, 1, needs="numpy")
COMPRESS = Workload("compress", "parallel compression", "compress", PER_MB, 100)

BUSY = Neighbours("busy", "four busy loops", "busy")
WEB = Neighbours("web", "four bursty web workers", "bursty")
THRASHERS = Neighbours("thrashers", "four cache thrashers", "thrasher")
BACKUP = Neighbours("batch", "four BestEffort compressions", "batch", 0)


@dataclass(frozen=True, slots=True)
class Case:
    """A workload beside neighbours, under several managers; the first one is compared with."""

    workload: Workload
    neighbours: Neighbours
    managers: tuple[Manager, ...] = _PINNED

    @property
    def name(self) -> str:
        """Names it in reports."""
        return f"{self.workload.name}/{self.neighbours.name}"


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

    def chosen(self, prefixes: tuple[str, ...], numa_nodes: int) -> tuple[Case, ...]:
        """The cases whose names begin with one of *prefixes*, all if there is none, on a machine like this.

        With several NUMA nodes, there is a case in which memory can be remote.

        Raises:
            ValueError: there are no such cases.
        """
        numa = (Case(STREAM, BUSY),) if numa_nodes > 1 and self.has_figures else ()
        cases = tuple(case for case in (*self.cases, *numa) if not prefixes or case.name.startswith(prefixes))
        if not cases:
            raise ValueError(f"no case begins with {' or '.join(prefixes)}")
        return cases


DEFAULT = Plan(
    (
        Case(TENSORFLOW, BUSY),
        Case(PYTORCH, BUSY),
        Case(REDIS, WEB),
        Case(REDIS_BURSTABLE, WEB, (NOBODY, KUBELET, BALLOONS, LATE_BATCH)),
        Case(REDIS_LIMITED, BACKUP, (TOPOLOGY_AWARE, BURST)),
        Case(STREAM, THRASHERS),
        Case(COMPRESS, BACKUP),
    )
)
QUICK = Plan((Case(COMPRESS, BUSY, (NOBODY, KUBELET, BALLOONS, BURST)),), rounds=2, seconds=0.3, has_figures=False)
