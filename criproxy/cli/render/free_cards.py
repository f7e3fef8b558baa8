"""Whether free cards or vGPUs are enough for a pod, and on which NUMA nodes: what `criproxy fit --device` shows.

Pure functions of an answer of `criproxy devices`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from criproxy.devices.classes.vgpu_profiles import DOMAIN
from criproxy.errors import CriproxyError
from criproxy.model.text.notices import Values

_GPU = "/gpu"
"""The end of the names of resources that `--gpu` means."""
_MIG = "/mig-"
"""In names of resources that are parts of cards, which only the device plugin can count."""


def cards_of_container(devices: Values, wanted: Mapping[str, int]) -> list[Values]:
    """Return `free_cards` for each resource that one container asks for; of all vGPUs, a container can have one.

    Raises:
        CriproxyError: as `free_cards`.
    """
    found = [free_cards(devices, resource, count) for resource, count in wanted.items()]
    profiles = wanted.keys() & {each["resource"] for each in devices["vgpus"]}
    asked = sum(wanted[profile] for profile in profiles)
    if asked <= 1:
        return found
    refused = {"fits": False, "refused": f"a container can have at most one vGPU, and this one asks for {asked}"}
    return [{**each, **refused} if each["resource"] in profiles else each for each in found]


def free_cards(devices: Values, resource: str, wanted: int) -> Values:
    """Return whether *wanted* ids of *resource* are free, how many are, and on which NUMA nodes.

    If only the device plugin can say that, and it does not report, ``free`` is None, and ``unknown`` says why.

    Raises:
        CriproxyError: it is unknown which cards are free, or this node does not have the resource.
    """
    _check_guarded(devices)
    kind = _class_of(devices, resource)
    unknown, total, by_node = _why_unknown(devices, kind, resource), None, Counter[int | None]()
    if not unknown:
        for node, free in _free_by_card(kind["cards"], resource):
            by_node[node] += free
        reported = _reported(devices, kind, resource)
        total = by_node.total() if reported is None else reported
    return {
        "resource": resource,
        "wanted": wanted,
        "fits": total is not None and total >= wanted,
        "free": total,
        "unknown": unknown,
        "refused": "",
        "free_by_numa_node": [
            {"numa_node": node, "free": by_node[node]}
            for node in sorted(by_node, key=lambda node: (node is None, node or 0))
            if by_node[node]
        ],
        "numa_nodes_with_room": sorted(node for node, free in by_node.items() if node is not None and free >= wanted),
    }


def gpu_resource(devices: Values) -> str:
    """Return the resource of this node's GPUs.

    Raises:
        CriproxyError: no class with cards has one, or several do.
    """
    _check_guarded(devices)
    kinds = [kind for kind in devices["classes"] if kind["cards"]]
    found = [name.removesuffix("*") for kind in kinds for name in _names(kind)]
    names = [name for name in dict.fromkeys(found) if name.endswith(_GPU)]
    if len(names) == 1:
        return names[0]
    if not names:
        raise CriproxyError("this node has no GPU with a resource named …/gpu; name the resource with --device")
    raise CriproxyError(f"this node has GPUs of several resources ({', '.join(names)}); name one with --device")


def _check_guarded(devices: Values) -> None:
    if not devices["guarded"]:
        text = "the policy file has no devices section, so criproxy does not know which cards are free"
        raise CriproxyError(text)


def _names(kind: Values) -> list[str]:
    return [*(each["name"] for each in kind["advertised"]), *kind["resources"]]


def _class_of(devices: Values, resource: str) -> Values:
    """Return the class that has *resource*: as the device plugin says, else by the names in the class."""
    offered = {each["class"] for each in devices["vgpus"] if each["resource"] == resource and each["offered"]}
    classes: list[Values] = devices["classes"]
    for kind in classes:
        if kind["name"] in offered or any(each["name"] == resource for each in kind["advertised"]):
            return kind
    for kind in classes:
        if _MIG not in resource and any(fnmatchcase(resource, pattern) for pattern in kind["resources"]):
            return kind
    known = list(dict.fromkeys(name for kind in classes if kind["cards"] for name in _names(kind)))
    raise CriproxyError(f"this node has no resource {resource!r:.200}; it has {', '.join(known) or 'no cards'}")


def _why_unknown(devices: Values, kind: Values, resource: str) -> str:
    """Return why the ids of *resource* cannot be counted; empty if they can be."""
    plugin, is_offered = devices.get("device_plugin"), _reported(devices, kind, resource) is not None
    if plugin is None and resource.startswith(f"{DOMAIN}/") and not is_offered:
        return "the device plugin has not reported; is criproxy device-plugin running?"
    if plugin is not None and plugin["state"] != "running" and is_offered:
        return f"the device plugin has not reported since {plugin['reported']}; is criproxy device-plugin running?"
    return ""


def _reported(devices: Values, kind: Values, resource: str) -> int | None:
    """Return how many ids are free as the device plugin counts them; None if it does not offer the resource."""
    for each in devices["vgpus"]:
        if each["resource"] == resource and each["class"] == kind["name"]:
            return int(each["free"])
    for each in kind["advertised"]:
        if each["name"] == resource:
            return max(0, int(each["healthy"]) - int(each["given"] or 0))
    return 0 if devices.get("device_plugin") and resource.startswith(f"{DOMAIN}/") else None


def _free_by_card(cards: list[Values], resource: str) -> Iterator[tuple[int | None, int]]:
    """Yield the NUMA node of each card, None if it is unknown, and how many ids of *resource* are free on it."""
    is_reported = any(resource in card["replicas"] for card in cards)
    for card in cards:
        if card["healthy"] is False or (is_reported and resource not in card["replicas"]):
            continue
        replicas = card["replicas"].get(resource, 0)
        free = replicas - len(_given(card, resource)) if replicas else int(not card["containers"])
        yield card["numa_node"], max(0, free)


def _given(card: Values, resource: str) -> set[str]:
    """Return the ids of *resource* on *card* that containers have; containers of one pod may share one."""
    return {
        one
        for holder in card["containers"] or ()
        for share in holder["allocated"]
        if share["resource"] == resource
        for one in share["ids"]
        if one in holder["ids_of_card"]
    }
