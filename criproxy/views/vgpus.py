"""The vGPUs of a node for schedulers and people: how many, of what size, and how many are free."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from criproxy.devices.offers import card_of
from criproxy.devices.published import Advertised
from criproxy.model.notices import Values

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
            used = given.get(each.name, ())
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
                    "used_by_card": dict(Counter(map(card_of, used))),
                }
            )
    return found


def annotations(vgpus: Sequence[Values]) -> dict[str, str]:
    """Return the annotation of the node, a JSON text; empty if there are no vGPUs."""
    if not vgpus:
        return {}
    keys = ("resource", "count", "free", "memory_mib", "cores_percent")
    return {ANNOTATION: json.dumps([{key: each[key] for key in keys} for each in vgpus], separators=(",", ":"))}
