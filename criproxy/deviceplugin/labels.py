"""The labels of resources of other vendors than NVIDIA, and the feature file, from which the node gets all labels.

As with NVIDIA, the keys begin with the resource, and so with the vendor's domain: ``huawei.com/Ascend910.count``.
If the API server refuses one label, the node can lose all others; therefore, no such label is written.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from criproxy.devices.classes.offers import SHARED_SUFFIX, Offered, Offers

FILE_MODE: Final = 0o644
"""The worker of node-feature-discovery may not run as root."""
MAX_LABEL = 63
"""The maximum length of a value, and of a key without its prefix."""
_MAX_PREFIX = 253
_ILLEGAL = re.compile("[^A-Za-z0-9_.-]")
_NAME = re.compile("[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_NOT_AT_ENDS = "-_."


def resource_labels(offers: Offers) -> dict[str, str]:
    """Return the labels of resources; a resource and the renamed one of its shared cards are one."""
    cards: dict[str, list[Offered]] = {}
    for resource, offered in offers.items():
        cards.setdefault(resource.removesuffix(SHARED_SUFFIX), []).extend(offered.values())
    labels: dict[str, str] = {}
    for name, ids in cards.items():
        replicas = max((each.replicas for each in ids), default=1) or 1  # the most, if cards differ
        labels |= {
            f"{name}.count": str(len({each.card for each in ids})),
            f"{name}.replicas": str(replicas),
            f"{name}.sharing-strategy": "time-slicing" if replicas > 1 else "none",
        }
    return labels


def vgpu_labels(resource: str, offered: Iterable[Offered]) -> dict[str, str]:
    """Return the labels of a profile: the numbers of its vGPUs and their cards, and the smallest quotas among them."""
    parts = [(each.whole_index, each.vgpu) for each in offered if each.vgpu]
    vgpus = [vgpu for _, vgpu in parts]
    labels = {f"{resource}.count": str(len(parts)), f"{resource}.cards": str(len({card for card, _ in parts}))}
    for name, quotas in (
        ("memory-mib", [each.memory_mib for each in vgpus]),
        ("cores-percent", [each.cores_percent for each in vgpus]),
    ):
        if any(quotas):
            labels[f"{resource}.{name}"] = str(min(quotas))
    return labels


def legal_value(text: str) -> str:
    """Return *text* as a valid value of a label: shortened, and without characters that are not allowed there."""
    return _ILLEGAL.sub("", text).lstrip(_NOT_AT_ENDS)[:MAX_LABEL].rstrip(_NOT_AT_ENDS)


def is_legal_key(key: str) -> bool:
    """Whether *key* is a valid key of a label, with a prefix."""
    prefix, slash, name = key.partition("/")
    return (
        bool(slash)
        and len(prefix) <= _MAX_PREFIX
        and len(name) <= MAX_LABEL
        and _PREFIX.fullmatch(prefix) is not None
        and _NAME.fullmatch(name) is not None
    )


def legal_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return *labels* with valid values, sorted by key; leaves out those with an invalid key."""
    return {key: legal_value(labels[key]) for key in sorted(filter(is_legal_key, labels))}


def feature_file(labels: Mapping[str, str]) -> str:
    """Return a line ``key=value`` for each label, sorted by key; leaves out labels with an invalid key."""
    return "".join(f"{key}={value}\n" for key, value in legal_labels(labels).items())
