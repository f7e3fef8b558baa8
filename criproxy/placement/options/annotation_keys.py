"""The annotations that policies read: one table for checks of `annotations.allow`, for refusals and for the docs."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Key:
    """An annotation's key, without domain and scope."""

    value: str
    """What its value looks like."""
    meaning: str
    """What it does, for the authors of pods."""
    policies: tuple[str, ...] = ("topology-aware",)
    """By the names in policy files; empty: all that place containers."""
    restricted: bool = False
    """Whether pods may use it only where the policy file permits it."""


_ALL_POLICIES = ()
_WITH_MEMORY = ("topology-aware", "balloons", "pools")
_WITH_CARDS = ("topology-aware", "balloons", "static")


def _switch(meaning: str, policies: tuple[str, ...] = ("topology-aware",), *, restricted: bool = False) -> Key:
    return Key("`true` or `false`", meaning, policies, restricted)


_DECIDES = {
    "cpu-class": "CPU time, and frequencies of its CPUs",
    "memory-class": "memory",
    "blockio-class": "block devices",
    "rdt-class": "caches and memory bandwidth",
    "scheduling-class": "scheduling",
    "irq-class": "interrupts of its CPUs",
}
"""Key of a class for one kind → what that class decides about."""

KEYS: Mapping[str, Key] = {
    "prefer-isolated-cpus": _switch(
        "whether the container prefers isolated CPUs (isolcpus) as its exclusive CPUs", ("topology-aware", "static")
    ),
    "require-isolated-cpus": _switch("whether criproxy refuses the container if too few isolated CPUs are free for it"),
    "prefer-cpu-priority": Key(
        "`high`, `normal`, `low` or `none`",
        "which kind of exclusive CPUs the container prefers: the fastest, normal ones, efficiency cores, or any",
    ),
    "prefer-shared-cpus": _switch(
        "whether the container shares CPUs instead of getting exclusive ones; with `false`, a container that "
        "requests 2500m gets two exclusive CPUs and shares CPUs for the rest"
    ),
    "prefer-reserved-cpus": _switch(
        "whether the container runs on the reserved CPUs; works only in namespaces that `annotations.allow` lists",
        restricted=True,
    ),
    "unlimited-burstable": Key(
        "`system`, `package`, `die`, `numa` or `l3cache`",
        "the size of the part of the machine in which a Burstable container without a CPU limit runs",
    ),
    "hide-hyperthreads": _switch(
        "whether the container runs on only one thread of each core; its other exclusive threads stay idle",
        ("topology-aware", "balloons"),
    ),
    "topologyhints": Key(
        "`true`, `false`, or a list of `mounts`, `devices`, `pod-resources`, `all`, `none`",
        "whether the container is placed close to its cards (on by default)",
        _WITH_CARDS,
    ),
    "strict.topologyhints": _switch(
        "whether criproxy refuses the container if there is no room close to all of its cards", _WITH_CARDS
    ),
    "pick-resources-by-hints": _switch(
        "whether the container's exclusive CPUs are divided among its cards, so that some are close to each card"
    ),
    "cpu.preserve": _switch(
        "whether the container runs on all CPUs of the machine that are not exclusive, without being placed; "
        "works only in namespaces that `annotations.allow` lists",
        ("topology-aware", "balloons"),
        restricted=True,
    ),
    "memory-type": Key(
        "a list of `dram`, `pmem`, `hbm`, `device`; or `mixed`",
        "the kinds of memory that the container gets; each kind comes from the NUMA nodes closest to its CPUs",
        _WITH_MEMORY,
    ),
    "cold-start": Key(
        "`duration: 10s`, at most `1h`",
        "how long the container gets memory only from PMEM after it starts, so that pages that are used only during "
        "startup do not fill DRAM",
        _WITH_MEMORY,
    ),
    "memory.preserve": _switch("whether criproxy leaves the memory nodes of the container unchanged", _WITH_MEMORY),
    "class": Key(
        "the name of a class",
        "the class of the container, in all respects in which the class sets something; works only in namespaces that "
        "`annotations.allow` lists, as do the annotations about one respect",
        _ALL_POLICIES,
        restricted=True,
    ),
    **{
        key: Key("the name of a class", f"the class of the container that decides about {what}", _ALL_POLICIES, True)
        for key, what in _DECIDES.items()
    },
    "affinity": Key(
        "YAML", "which containers this one should be near: names, or expressions with weights from -1000 to 1000"
    ),
    "anti-affinity": Key("YAML", "which containers this one should be kept away from"),
    "pool.podpools": Key("the name of a pool", "the pool in which the pod runs", ("pools",)),
    "balloon.balloons": Key(
        "the name of a balloon type", "the type of balloon in which the container runs", ("balloons",)
    ),
}
"""Every key that some policy reads."""

CLASS_KEYS = frozenset(("class", *_DECIDES, "rdtclass", "blockioclass"))
"""Keys that name a class; the last two are CRI-RM's for ``rdt-class`` and ``blockio-class``, and allowed with these."""

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
    return any(fnmatchcase(namespace, pattern) and matches_one(key, keys) for pattern, keys in rules.items())


@lru_cache(maxsize=1024)  # each create asks about its namespace
def matches_one(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether *text* is what any of *patterns* with * and ? stands for."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)
