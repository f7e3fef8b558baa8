"""The table of what each command prints with ``--format json``: keys and types, in the language of `shapes`."""

from typing import Any

from tests.contract.shapes import EACH

Shape = Any
TEXT, WHOLE, REAL, FLAG, TEXTS = (str, None), (int, None), (float, None), (bool, None), [str]
"""Values that may be null, and a list of texts."""
FACTS = {EACH: object}
"""What a record says of a moment, by names of its kind."""

NOTICE = {"kind": str, "wrong": bool, "text": str}
SOURCE = {"source": str, "time": str, "version": str, "pid": WHOLE}
HEAD = {**SOURCE, "host": str, "started": TEXT, "notices": [NOTICE]}
IDENTITY = {"id": str, "namespace": str, "pod": str, "container": str}
NAME = {**IDENTITY, "state": str}
MOVED = {**IDENTITY, "from_cpus": str, "cpus": str, "from_mems": str, "mems": str}
CONTAINER = {
    **NAME,
    **dict.fromkeys(
        "reservation qos cpus mems exclusive_cpus pool cpu_quota applied_cpus applied_mems error".split(), str
    ),
    **dict.fromkeys(("attempt", "failures"), int),
    **dict.fromkeys(("starting", "placed", "in_place"), bool),
    **dict.fromkeys(("cpu_request_milli", "memory_request_bytes"), ([int], None)),
    **dict.fromkeys(("cpu_limit_milli", "memory_limit_bytes", "pod_cpu_milli"), WHOLE),
}
LAST_CALL = {"last_call": TEXT, "last_call_s": REAL}
FILE = {"file": str, "hash": str}
STATUS = {
    **HEAD,
    "kubelet": ({**LAST_CALL, "classes": {EACH: {"calls": int, **LAST_CALL}}}, None),
    "plugin": ({"socket": str, "problem": str}, None),
    "runtime": ({"name": str, "version": str, "socket": str}, None),
    "configuration": (
        {**FILE, "loaded": TEXT, "kept": bool, "try": ({"until": str, "left_s": float, "back": FILE}, None)},
        None,
    ),
    "agent": ({"version": str, "since": str, "problems": TEXTS}, None),
    "controls": (
        {
            **dict.fromkeys("state problem socket version".split(), str),
            **dict.fromkeys(
                "generation acknowledged containers unplaced late_starts drift troubles_omitted".split(), int
            ),
            "pending": bool,
            "troubles": [{"what": str, "text": str}],
            "cpus": {EACH: str},
            "irqs": (FACTS, None),
        },
        None,
    ),
    "policy": str,
    "refusals": [{"container": str, "time": str, "times": int, "text": str}],
    "refusals_omitted": int,
    "cpus": {
        **dict.fromkeys("allowed exclusive shared isolated watched offline".split(), str),
        **dict.fromkeys(("free", "reserved"), TEXT),
    },
    "cpu_counts": {"exclusive": int, "capacity": WHOLE, "free": WHOLE},
    "shared_by_all": bool,
    "kept": [{"pod": str, "uid": str, "cpus": str, "containers": TEXTS}],
    "memory_nodes": str,
    "numa_nodes": [
        {
            **dict.fromkeys(("cpus", "exclusive_cpus", "shared_cpus"), str),
            **dict.fromkeys(("id", "memory_bytes"), int),
            "free_cpus": TEXT,
            "free": WHOLE,
        }
    ],
    "totals": dict.fromkeys("pods containers exited exclusive shared unplaced unknown not_in_place".split(), int),
    "omitted": int,
    "containers": [CONTAINER],
}
CHECKED = {**STATUS, "problems": TEXTS, "under_way": TEXTS, "found": [NOTICE]}
CHOICE = {
    "time": str,
    "decision": str,
    "candidates": (
        {
            **dict.fromkeys(("of", "chosen", "note"), str),
            "decided_by": TEXT,
            "criteria": [{"name": str, "unit": str}],
            "rows": [{"name": str, "values": [(int, bool)], "loses_by": TEXT, "lacks": str, "note": str}],
            "omitted": int,
        },
        None,
    ),
    "leavers": ({"containers": TEXTS, "omitted": int, "shortest": bool, "steps": int, "text": str}, None),
}
SHARE = {"resource": str, "ids": TEXTS, "count": int, "source": str}
OVER_QUOTA = {
    **dict.fromkeys("container_id namespace pod container device_class card quantity since action use".split(), str),
    "used": float,
    "allowed": float,
    "pid": int,
    "start_ticks": int,
}
EVENT = {"time": str, "kind": str, "sentences": TEXTS, "facts": FACTS}
EXPLAIN = {
    **HEAD,
    "container": (CONTAINER, NAME),
    "asked": ({"read_as": TEXTS, "sent": FACTS}, None),
    "why": TEXTS,
    "devices": [
        {
            **dict.fromkeys("class evidence pci_addresses nodes numa_nodes".split(), str),
            "allocated": [SHARE],
            "cards": TEXTS,
            "quota": (
                {
                    "profile": str,
                    "memory_mib": WHOLE,
                    "cores_percent": WHOLE,
                    "enforced_by": str,
                    "not_enforced": str,
                },
                None,
            ),
        }
    ],
    "controls": (
        {
            "classes": {EACH: str},
            "files": [{"file": str, "desired": str, "applied": TEXT}],
            "service": (FACTS, None),
            "service_state": str,
            "troubles": TEXTS,
            "throttling": (
                {
                    "since": str,
                    "lifted": bool,
                    "limited": {"seconds": float, "throttled_s": REAL},
                    "unlimited": {"seconds": float, "throttled_s": REAL},
                    "bursts": WHOLE,
                    "burst_s": REAL,
                    "pod": ({"quota_us": WHOLE, "period_us": WHOLE, "throttled_s": REAL}, None),
                },
                None,
            ),
        },
        None,
    ),
    "over_quota": [OVER_QUOTA],
    "choices": [CHOICE],
    "should_own": ({"should_own_cpus": int, "owns_cpus": int, "since": str, "why": str}, None),
    "waits_for": TEXTS,
    "events": [EVENT],
    "earlier": [{"id": str, "state": str, "time": str, "text": str}],
}
HOLDER = {**NAME, "ids": TEXTS, "evidence": str, "allocated": [SHARE]}
SEEING = {**NAME, "findings": TEXTS}
VGPU = {
    **dict.fromkeys(("profile", "resource", "class"), str),
    **dict.fromkeys(("count", "healthy", "free"), int),
    "memory_mib": WHOLE,
    "cores_percent": WHOLE,
    "enforced_by": TEXTS,
    "not_enforced_by": {EACH: str},
    "used_by_card": {EACH: int},
    "offered": bool,
}
CARD = {
    "index": int,
    "number": int,
    "id": str,
    "pci_address": str,
    "pci_bridges": TEXTS,
    "numa_node": WHOLE,
    "nodes": TEXTS,
    "parts": TEXTS,
    "healthy": FLAG,
    "reason": str,
    "since": TEXT,
    "replicas": {EACH: int},
    "containers": ([{**HOLDER, "ids_of_card": TEXTS}], None),
}
DEVICES = {
    **HEAD,
    "guarded": FLAG,
    "holders_known": bool,
    "device_plugin": ({"state": str, "reported": str, "version": str, "configuration": str}, None),
    "vgpus": [VGPU],
    "node_annotations": {EACH: str},
    "classes": [
        {
            "name": str,
            "resources": TEXTS,
            "shared_nodes": TEXTS,
            "advertised": [
                {"name": str, "ids": int, "healthy": int, "given": WHOLE, "registered": bool, "problem": str}
            ],
            "cards": [CARD],
            "links": [{"from": int, "to": int, "link": str, "distance": str, "nvlinks": int}],
            "elsewhere": [HOLDER],
            "may_see_more": [SEEING],
        }
    ],
    "incidents": [
        {
            **dict.fromkeys("class card since reason action".split(), str),
            "containers": [{**NAME, "use": str}],
        }
    ],
    "over_quota": [OVER_QUOTA],
    "see_all": [SEEING],
    "untold": [NAME],
}
USE = {"memory_mib": WHOLE, "cores_percent": REAL}
USAGE = {
    **SOURCE,
    "guarded": bool,
    "watcher": {
        "state": str,
        "reported": TEXT,
        "stale_after_s": REAL,
        "classes": [{"class": str, "source": str, "problem": str, "unread_cards": {EACH: str}}],
    },
    "node": {"cpu_ratio": REAL, "memory_ratio": REAL},
    "cards": [{"class": str, "id": str, **USE, "total_mib": WHOLE, "not_a_container": USE}],
    "containers": [
        {
            **NAME,
            **dict.fromkeys(("class", "card", "resource", "profile"), str),
            "ids": TEXTS,
            **USE,
            "memory_granted_mib": WHOLE,
            "cores_granted_percent": WHOLE,
            "over_since": {EACH: str},
            "actions": [
                {**dict.fromkeys(("action", "state", "since", "reason"), str), "quantity": TEXT, "ended": bool}
            ],
        }
    ],
    "unknown_containers": [{"id": str, "class": str, "card": str, "memory_mib": int}],
    "profiles": [
        {
            **dict.fromkeys(("class", "profile", "resource"), str),
            **dict.fromkeys(("vgpus", "healthy", "given", "free"), int),
            "offered": bool,
        }
    ],
    "history": [{"class": str, "card": str, "id": str, "title": str, "points": [{"time": str, **USE}]}],
}
WHO = {
    **HEAD,
    "asked_cpus": str,
    "rows": [
        {
            "cpus": str,
            "numa_node": WHOLE,
            "kinds": TEXTS,
            "kept": TEXTS,
            "containers": [
                {
                    **NAME,
                    **dict.fromkeys(("exclusive", "desired", "applied", "watched"), bool),
                    "desired_cpus": str,
                    "applied_cpus": str,
                }
            ],
        }
    ],
}
FIT = {
    **HEAD,
    "policy": str,
    "assumed": TEXTS,
    **dict.fromkeys(("fits", "placed"), bool),
    **dict.fromkeys("refusal cpus exclusive_cpus mems numa_nodes pool".split(), str),
    "why": TEXTS,
    "moved": [MOVED],
    "choice": (CHOICE, None),
    "devices?": [
        {
            "resource": str,
            "wanted": int,
            "fits": bool,
            "free": WHOLE,
            "unknown": str,
            "refused": str,
            "free_by_numa_node": [{"numa_node": WHOLE, "free": int}],
            "numa_nodes_with_room": [int],
        }
    ],
}
CPUS = [int]
TOPOLOGY = {
    **dict.fromkeys("online_cpus offline_cpus present_cpus isolated_cpus nohz_full_cpus allowed_cpus".split(), CPUS),
    "possible_cpus": TEXT,
    "allowed_mems": [int],
    "smt": bool,
    "packages": [{"id": int, "cpus": CPUS}],
    "dies": [{"package": int, "id": int, "cpus": CPUS}],
    "l3_groups": [CPUS],
    "l2_groups": [CPUS],
    "cores": [CPUS],
    "cpu_kinds": [{"cpus": CPUS, "capacity": WHOLE, "base_khz": WHOLE, "max_khz": WHOLE}],
    "numa_nodes": [
        {
            "id": int,
            "cpus": CPUS,
            "memory_bytes": WHOLE,
            "memory_only": bool,
            "kind": str,
            "normal_memory": bool,
        }
    ],
    "numa_distances": ({"nodes": [int], "matrix": [[int]]}, None),
    "node_states": {EACH: [int]},
    "frequencies": [{"cpus": CPUS, "base_khz": WHOLE, "min_khz": WHOLE, "max_khz": WHOLE}],
    "hugepages": [{"node": int, "size_bytes": int, "total": int, "free": int}],
    "pci": [{**dict.fromkeys(("address", "class", "vendor", "device"), str), "numa_node": int, "local_cpus": CPUS}],
    "controls": {
        **dict.fromkeys("governors energy_preferences idle_states".split(), TEXTS),
        "files": (TEXTS, None),
        **dict.fromkeys("block_io_limits block_io_weights".split(), (bool, None)),
        **dict.fromkeys("uncore real_time".split(), bool),
        **dict.fromkeys(("min_khz", "max_khz"), WHOLE),
        "cgroup_version": int,
        "resctrl": ({"resources": TEXTS, "groups": int}, None),
        "no_resctrl": str,
    },
}
CHECK = {
    "ok": bool,
    "machine": ({"cpus": str, "mems": str}, None),
    "files": [
        {
            "file": str,
            "chosen_because": str,
            "options": (FACTS, None),
            "notes": TEXTS,
            "devices": (
                {
                    EACH: {
                        "cards": [
                            {
                                "number": int,
                                "nodes": TEXTS,
                                "id": str,
                                "pci": str,
                                "bridges": TEXTS,
                                "numa_node": int,
                                "local_cpus": str,
                            }
                        ],
                        "shared": TEXTS,
                    }
                },
                None,
            ),
            "mistakes": [{"line": WHOLE, "column": WHOLE, "text": str}],
            "nvidia?": {"file": TEXT, "chosen_because": str, "notes": TEXTS, "mistakes": TEXTS},
        }
    ],
}
CONFIGURATION = {"source": str, "hash": str, "policy": str, "at_s": float, "how": str, "number": int, "since": str}
IN_FORCE = {"file": str, "until": TEXT, "kept": bool, "policy_file": str}
RELOAD = {**IN_FORCE, "policy": str, "hash": str}
RECOMMEND = {
    **dict.fromkeys(("current", "desired", "wanted"), int),
    "note": str,
    "metrics": [
        {
            "name": str,
            "value": REAL,
            **dict.fromkeys(("target", "up", "down"), float),
            "replicas": WHOLE,
            "why": str,
            "missing": int,
        }
    ],
    "vgpus": [{"profile": str, "given": int, "free": WHOLE, "wanted": int, "lacking": int, "use": REAL}],
}
SIMULATE = {
    "ok": bool,
    "failed": int,
    "mistakes": [{"line": int, "column": int, "text": str}],
    "cases": [
        {
            "id": str,
            "title": str,
            "rules": TEXT,
            "status": str,
            "failure": ({"line": int, "text": str}, None),
            "assertions_held": int,
            "placement": {EACH: {"cpus": str, "own": str, "mems": str, "pool": str}},
            "reasons?": [{"line": int, "text": str}],
            "choices?": [{"line": int, "container": str, **CHOICE}],
        }
    ],
}
LOAD = {
    "load": str,
    "duration_s": float,
    **dict.fromkeys(("events", "turned_away_pods"), int),
    "machine": {"cpus": int, "nodes": int},
    "take": TEXTS,
    "policies": [
        {
            "policy": str,
            "containers": int,
            "mean_containers": float,
            **dict.fromkeys("refused crowded distance fragmentation moves updates owned_cpus".split(), float),
            **dict.fromkeys("at_cards cpu_on_one_node memory_on_one_node".split(), REAL),
            "with_cards": int,
            "refusals": TEXTS,
        }
    ],
}
BYPASS = {"bypass": bool, "mode": str, "since": TEXT, "reason": TEXT}

_BOOKED = {**dict.fromkeys(("capacity_bytes", "allocatable_bytes", "requested_bytes"), int), "available_bytes": WHOLE}
AGENT = {
    **SOURCE,
    **dict.fromkeys(("host", "started", "instance", "policy", "released", "ready"), str),
    **dict.fromkeys(("revision", "refused"), int),
    **dict.fromkeys(("last_good", "known"), bool),
    **dict.fromkeys(("problems", "under_way", "notes"), TEXTS),
    "found": [NOTICE],
    "kubelet": {**LAST_CALL, "through": bool},
    **{key: STATUS[key] for key in ("runtime", "configuration")},
    "bypass": {"bypass": bool, **dict.fromkeys(("mode", "since", "reason"), str)},
    "numa_nodes": [
        {
            "id": int,
            "socket": WHOLE,
            "kind": str,
            "distances": {EACH: int},
            "cpus": {
                **dict.fromkeys(("list", "reserved", "exclusive", "exclusive_free"), str),
                **dict.fromkeys(("count", "shared_request_milli", "allocatable_milli"), int),
                "available_milli": WHOLE,
            },
            "memory": _BOOKED,
            "hugepages": {EACH: _BOOKED},
        }
    ],
    "pools": [{**dict.fromkeys(("name", "kind", "cpus", "mems", "exclusive"), str), "containers": int}],
    "devices": (
        [
            {
                **dict.fromkeys(("resource", "class", "profile"), str),
                "numa_node": WHOLE,
                **dict.fromkeys(("total", "healthy", "allocated", "free"), int),
            }
        ],
        None,
    ),
    "vgpus": TEXT,
    "labels": ({EACH: str}, None),
    "pods": [{**dict.fromkeys(("namespace", "name", "uid"), str), "stopped": bool}],
    "containers": STATUS["totals"],
}
"""What the daemon answers to the command ``agent`` of its socket for the agent, which may be of another version."""

SHAPES: dict[str, Shape] = {
    "bypass": BYPASS,
    "check": CHECK,
    "devices": DEVICES,
    "events": [{**EVENT, "container": str, "pod_uid": str, "id": str}],
    "explain": EXPLAIN,
    "fit": FIT,
    "history": {"configurations": [CONFIGURATION]},
    "history NUMBER": {**CONFIGURATION, "text": str},
    "recommend": RECOMMEND,
    "release": {
        **dict.fromkeys("source was_released released not_remembered not_seen not_put_back".split(), str),
        "places": bool,
        "configuration": IN_FORCE,
        "containers": [dict.fromkeys("container id cpus_before cpus outcome error".split(), str)],
    },
    "reload": RELOAD,
    "reload --dry-run": {
        **FILE,
        **dict.fromkeys(("policy", "apply", "exclusive_cpus"), str),
        **dict.fromkeys(("same", "accepted", "ends_release"), bool),
        "mistakes": TEXTS,
        "changes": TEXTS,
        "moved": [MOVED],
        "refused": [{**IDENTITY, "text": str}],
    },
    "reload --try": {**RELOAD, "moved": int, "no_place": int},
    "simulate": SIMULATE,
    "simulate --load": LOAD,
    "status": STATUS,
    "status --check": CHECKED,
    "topology": TOPOLOGY,
    "usage": USAGE,
    "who": WHO,
}
"""Command, with the option or argument that changes its shape, and the shape."""
