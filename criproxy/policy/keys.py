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
    """What it does, for the authors of pods."""
    policies: tuple[str, ...] = ("topology-aware",)
    """By the names in policy files."""
    restricted: bool = False
    """Whether pods may use it only where the policy file permits it."""


_BOOL = "`true` or `false`"

KEYS: Mapping[str, Key] = {
    "prefer-isolated-cpus": Key(
        _BOOL,
        "whether its exclusive CPUs, if it gets any, should be isolated ones (isolcpus)",
        ("topology-aware", "static"),
    ),
    "require-isolated-cpus": Key(_BOOL, "the same, but criproxy refuses it if there are too few isolated CPUs"),
    "prefer-cpu-priority": Key(
        "`high`, `normal`, `low` or `none`",
        "which exclusive CPUs it gets if there are several kinds: the fastest, the usual ones, efficiency cores or any",
    ),
    "prefer-shared-cpus": Key(
        _BOOL,
        "`true`: it shares CPUs even where it would get exclusive CPUs; `false`: with 2500m it gets two exclusive CPUs "
        "and shares the rest",
    ),
    "prefer-reserved-cpus": Key(
        _BOOL, "whether it runs on the reserved CPUs; only where `annotations.allow` permits it", restricted=True
    ),
    "unlimited-burstable": Key(
        "`system`, `package`, `die`, `numa` or `l3cache`",
        "how large the part of the machine should be in which a Burstable container without a CPU limit runs",
    ),
    "hide-hyperthreads": Key(
        _BOOL,
        "whether it runs on only one thread of each core; its other exclusive threads stay idle",
        ("topology-aware", "balloons"),
    ),
    "topologyhints": Key(
        "`true`, `false`, or some of `mounts`, `devices`, `pod-resources`, `all`, `none`",
        "whether it is placed close to its devices; it is by default",
        ("topology-aware", "balloons", "static"),
    ),
    "strict.topologyhints": Key(
        _BOOL,
        "whether criproxy refuses it if there is no room close to all of its devices",
        ("topology-aware", "balloons", "static"),
    ),
    "pick-resources-by-hints": Key(
        _BOOL, "whether its exclusive CPUs are split among its devices, close to each of them"
    ),
    "cpu.preserve": Key(
        _BOOL,
        "`true`: criproxy does not place it, and it runs on all CPUs of the machine that are not exclusive; only where "
        "`annotations.allow` permits it",
        ("topology-aware", "balloons"),
        restricted=True,
    ),
    "memory-type": Key(
        "some of `dram`, `pmem`, `hbm`, or `mixed`",
        "the kinds of memory that it gets, for each kind from the NUMA nodes nearest to its CPUs",
        ("topology-aware", "balloons", "pools"),
    ),
    "cold-start": Key(
        "`duration: 10s`, at most `1h`",
        "how long after its start its memory comes from PMEM only, so that pages used only then do not fill DRAM",
        ("topology-aware", "balloons", "pools"),
    ),
    "memory.preserve": Key(
        _BOOL, "whether criproxy leaves its memory where the kernel puts it", ("topology-aware", "balloons", "pools")
    ),
    "affinity": Key(
        "YAML", "which containers it should be near: names, or expressions with weights from -1000 to 1000"
    ),
    "anti-affinity": Key("YAML", "which containers it should be away from"),
    "pool.podpools": Key("the name of a pool", "the pool in which its pod runs", ("pools",)),
    "balloon.balloons": Key("a balloon type", "the type of the balloon in which it runs", ("balloons",)),
}
"""Every key that some policy reads."""

RESTRICTED = frozenset(key for key, known in KEYS.items() if known.restricted)
"""Keys that pods may use only where the policy file permits them: they reach CPUs that keep the node alive, or that the
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
