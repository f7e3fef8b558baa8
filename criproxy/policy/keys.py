"""The annotations that policies read: one table for checks of `annotations.allow`, for refusals and for the docs."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Key:
    """An annotation's key, without domain and scope."""

    value: str
    """What its value looks like."""
    meaning: str
    """A sentence for workload owners."""
    policies: tuple[str, ...] = ("topology-aware",)
    """By the names in policy files."""
    restricted: bool = False
    """Whether no namespace may use it unless the policy file says so."""


_BOOL = "`true` or `false`"

KEYS: Mapping[str, Key] = {
    "prefer-isolated-cpus": Key(
        _BOOL,
        "whether CPUs of its own should be ones that the kernel keeps free (isolcpus); it needs at least one",
        ("topology-aware", "static"),
    ),
    "require-isolated-cpus": Key(_BOOL, "the same, and it is refused where there are not enough of them"),
    "prefer-cpu-priority": Key(
        "`high`, `normal`, `low` or `none`",
        "which CPUs it owns where a machine has several kinds: the fastest, usual ones, efficiency cores, or any",
    ),
    "prefer-shared-cpus": Key(
        _BOOL, "`true`: it shares also where it would own CPUs; `false`: of 2500m it owns two and shares the rest"
    ),
    "prefer-reserved-cpus": Key(
        _BOOL, "whether it runs on the reserved CPUs; only where `annotations.allow` lets it", restricted=True
    ),
    "unlimited-burstable": Key(
        "`system`, `package`, `die`, `numa` or `l3cache`",
        "how large the part of the machine should be in which a Burstable container without a CPU limit runs",
    ),
    "hide-hyperthreads": Key(
        _BOOL,
        "whether it sees one thread of each core only; the others of its own stay idle",
        ("topology-aware", "balloons"),
    ),
    "topologyhints": Key(
        "`true`, `false`, or some of `mounts`, `devices`, `pod-resources`, `all`, `none`",
        "whether it is placed close to its devices; it is by default",
        ("topology-aware", "balloons", "static"),
    ),
    "strict.topologyhints": Key(
        _BOOL,
        "whether it is refused where there is no room close to all of its devices",
        ("topology-aware", "balloons", "static"),
    ),
    "pick-resources-by-hints": Key(_BOOL, "whether CPUs of its own are chosen device by device, next to each of them"),
    "cpu.preserve": Key(
        _BOOL,
        "whether it is not placed: it runs on all CPUs of the machine that are not exclusive; only where "
        "`annotations.allow` lets it",
        ("topology-aware", "balloons"),
        restricted=True,
    ),
    "memory-type": Key(
        "some of `dram`, `pmem`, `hbm`, or `mixed`",
        "the kinds of memory that it gets, of each the NUMA nodes nearest to its CPUs",
        ("topology-aware", "balloons", "pools"),
    ),
    "cold-start": Key(
        "`duration: 10s`, at most `1h`",
        "how long after its start its memory comes from PMEM only, so that the rest does not fill up DRAM",
        ("topology-aware", "balloons", "pools"),
    ),
    "memory.preserve": Key(
        _BOOL, "whether its memory is left where the kernel puts it", ("topology-aware", "balloons", "pools")
    ),
    "affinity": Key(
        "YAML", "which containers it wants to be near: names, or expressions with weights from -1000 to 1000"
    ),
    "anti-affinity": Key("YAML", "which containers it wants to be away from"),
    "pool.podpools": Key("the name of a pool", "in which pool its pod runs", ("pools",)),
    "balloon.balloons": Key("a balloon type", "the type of the balloon that it runs in", ("balloons",)),
}
"""Every key that some policy reads."""

RESTRICTED = frozenset(key for key, known in KEYS.items() if known.restricted)
"""Keys that no namespace may use unless the policy file says so: they reach CPUs that keep the node alive, or that the
policy gave to others."""


Rules = Mapping[str, tuple[str, ...]]
"""Namespace pattern → patterns of keys, both with * and ?."""


def may_use(namespace: str, key: str, allowed: Rules, denied: Rules) -> bool:
    """Whether pods of *namespace* may use the annotation *key*; if nothing is *allowed*, all but `RESTRICTED` are."""
    if denied and _says(denied, namespace, key):
        return False
    return _says(allowed, namespace, key) if allowed else key not in RESTRICTED


def _says(rules: Rules, namespace: str, key: str) -> bool:
    return any(
        fnmatchcase(namespace, pattern) and any(fnmatchcase(key, each) for each in keys)
        for pattern, keys in rules.items()
    )


def matches_any(pattern: str) -> bool:
    """Whether a pattern with * and ? stands for some key that there is."""
    return any(fnmatchcase(key, pattern) for key in KEYS)
