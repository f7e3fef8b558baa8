"""The vGPUs of a node for schedulers and people: how many, of what size, and how many are free."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from criproxy.devices.classes.offers import card_of
from criproxy.devices.plugin.published import Advertised
from criproxy.model.text.notices import Values

ANNOTATION = "devices.criproxy.io/vgpus"
"""The node annotation for schedulers that need more than a count; criproxy prints its text and does not write it."""


def inventory(resources: Sequence[Advertised], given: Mapping[str, Sequence[str]]) -> list[Values]:
    """Return each profile that our device plugin offers.

    Args:
        resources: the resources that it reports.
        given: the ids that are allocated to containers, by resource.
    """
    found = []
    for each in resources:
        if each.profile:
            used = set(given.get(each.name, ()))  # containers of one pod may have the same one
            found.append(
                {
                    "profile": each.profile,
                    "resource": each.name,
                    "class": each.device_class,
                    "count": each.ids,
                    "healthy": each.healthy,
                    "free": max(each.healthy - len(used), 0),
                    "memory_mib": each.memory_mib or None,
                    "cores_percent": each.cores_percent or None,
                    "enforced_by": [method for method in each.enforce if method not in each.not_enforced],
                    "not_enforced_by": dict(each.not_enforced),
                    "used_by_card": dict(Counter(map(card_of, used))),
                    "offered": True,
                }
            )
    return found


def withdrawn(resources: Sequence[Advertised], given: Mapping[tuple[str, str, str], Sequence[str]]) -> list[Values]:
    """Each profile that is not offered any more, and whose vGPUs containers still have.

    Args:
        resources: what the device plugin offers.
        given: by class, profile and resource, the vGPUs that containers have.
    """
    offered = {(each.device_class, each.name) for each in resources}
    return [
        {
            "profile": profile,
            "resource": resource,
            "class": kind,
            "count": 0,
            "healthy": 0,
            "free": 0,
            "memory_mib": None,
            "cores_percent": None,
            "enforced_by": [],
            "not_enforced_by": {},
            "used_by_card": dict(Counter(map(card_of, dict.fromkeys(ids)))),
            "offered": False,
        }
        for (kind, profile, resource), ids in sorted(given.items())
        if (kind, resource) not in offered
    ]


def annotations(vgpus: Sequence[Values]) -> dict[str, str]:
    """Return the annotation of the node, a JSON text; empty if there are no vGPUs."""
    if not vgpus:
        return {}
    keys = ("resource", "count", "free", "memory_mib", "cores_percent")
    return {ANNOTATION: json.dumps([{key: each[key] for key in keys} for each in vgpus], separators=(",", ":"))}
