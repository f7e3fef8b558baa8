"""The daemon's answer to `status` as values, as far as `criproxy top` shows it; all texts are printable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.text.bounded import bounded

Values = Mapping[str, Any]
MAX_NAME = 200
"""Characters of a name; those of Kubernetes are shorter, and a screen is not wider."""
SETS = ("allowed", "exclusive", "shared", "free", "reserved", "isolated", "offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One container."""

    id: str
    """The runtime's; empty while it has none."""
    title: str
    """NAMESPACE/POD/CONTAINER."""
    state: str
    qos: str = ""
    cpus: CpuSet = frozenset()
    """Those that it was granted."""
    exclusive: CpuSet = frozenset()
    placed: bool = True
    in_place: bool = True
    error: str = ""
    """Of its last update."""
    cpu_request_milli: int | None = None
    cpu_limit_milli: int | None = None
    memory_limit_bytes: int | None = None

    @property
    def key(self) -> str:
        """What is the same in every answer."""
        return self.id or self.title

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.state != "exited"

    @property
    def cpu_bound_milli(self) -> int | None:
        """What it can use of CPU at most, as far as a limit or its exclusive CPUs say."""
        bounds = [len(self.exclusive) * 1000 or None, self.cpu_limit_milli]
        return min((bound for bound in bounds if bound), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The node at one moment."""

    source: str
    """``daemon``, or ``store`` if the daemon did not answer."""
    time: str
    version: str = ""
    policy: str = ""
    started: str = ""
    notices: Sequence[tuple[bool, str]] = ()
    """Whether something is wrong, and the text."""
    refusals: Sequence[tuple[str, str, str]] = ()
    """Of each container that cannot be created: title, time of the last refusal, text."""
    sets: Mapping[str, CpuSet] = field(default_factory=dict)
    """The CPUs by the words of `SETS`, without those that are unknown."""
    capacity: int | None = 0
    """How many CPUs could be exclusive at the most; None if that is unknown."""
    kept: CpuSet = frozenset()
    """Exclusive CPUs that are kept for pods whose containers have ended."""
    nodes: Mapping[int, CpuSet] = field(default_factory=dict)
    """The CPUs of the NUMA nodes."""
    rows: Sequence[Row] = ()
    omitted: int = 0
    pods: int = 0


def snapshot(values: Values) -> Snapshot:
    """Read an answer; what only newer or older daemons say may be missing.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is no answer to `status`.
    """
    told = {key: value for key, value in values.items() if key != "containers"}
    head = bounded(told)
    cpus = {name: head["cpus"].get(name, "") for name in SETS}
    sets = {name: parse_cpuset(each) for name, each in cpus.items() if each is not None}
    return Snapshot(
        source=head["source"],
        time=head["time"],
        version=head["version"],
        policy=head["policy"],
        started=head["started"] or "",
        notices=[(bool(notice["wrong"]), notice["text"]) for notice in head["notices"]],
        refusals=[(each["container"], each["time"], each["text"]) for each in head["refusals"]],
        sets=sets,
        capacity=head.get("cpu_counts", {}).get("capacity", len(sets["allowed"])),
        kept=frozenset().union(*(parse_cpuset(each["cpus"]) for each in head.get("kept", ()))),
        nodes={int(node["id"]): parse_cpuset(node["cpus"]) for node in head["numa_nodes"]},
        rows=[_row(row) for row in values["containers"]],
        omitted=int(head.get("omitted", 0)),
        pods=int(head["totals"]["pods"]),
    )


def _row(row: Values) -> Row:
    request = row["cpu_request_milli"]
    parts = (bounded(row[key], MAX_NAME) for key in ("namespace", "pod", "container"))
    return Row(
        id=row["id"],
        title="/".join(part for part in parts if part) or bounded(row["id"], MAX_NAME),
        state=bounded(row["state"], MAX_NAME),
        qos=bounded(row["qos"], MAX_NAME),
        cpus=parse_cpuset(row["cpus"]),
        exclusive=parse_cpuset(row["exclusive_cpus"]),
        placed=bool(row["placed"]),
        in_place=bool(row["in_place"]),
        error=bounded(row["error"]),
        cpu_request_milli=int(request[0]) if request else None,
        cpu_limit_milli=row["cpu_limit_milli"],
        memory_limit_bytes=row["memory_limit_bytes"],
    )
