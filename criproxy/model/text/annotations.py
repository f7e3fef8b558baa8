"""Pod annotations with requests to a policy.

An annotation is ``KEY.DOMAIN/container.NAME`` for one container, ``KEY.DOMAIN/pod`` or ``KEY.DOMAIN`` for all of a pod.
The domain is ours or one of our peers', so that a workload keeps its annotations when its node moves over.
"""

import re
from collections.abc import Mapping

from criproxy.model.text.amounts import parse_seconds

DOMAINS = ("criproxy.io", "cri-resource-manager.intel.com", "resource-policy.nri.io")
"""In the order of their precedence: ours comes first."""

OF_PEERS = frozenset(
    (
        *("rdt.resources.beta.kubernetes.io", "blockio.resources.beta.kubernetes.io", "class.memory-qos.nri.io"),
        *("cpu-quota.crio.io", "irq-load-balancing.crio.io", "cpu-c-states.crio.io", "cpu-freq-governor.crio.io"),
        "cpu-load-balancing.crio.io",
    )
)
"""Annotations about classes outside these domains, without the scope behind the slash."""
MAX_VALUE_CHARS = 16_384
"""The longest value that is read: no other container is placed meanwhile."""
MAX_LABEL_CHARS = 1024
"""The longest value of a label that an expression compares."""
MAX_POD_BYTES = 65_536
"""The most that is kept of the labels and annotations of a pod."""
LEFT_OUT = f"(left out: criproxy reads at most {MAX_POD_BYTES // 1024} KiB of the annotations of a pod)"
"""The value of an annotation beyond that: no policy understands it, so that the pod is refused."""
_MOST_LEFT_OUT = 64
COLD_START = "cold-start"
MAX_COLD_START_S = 3600.0
_COLD_START = re.compile(r"""\s*\{?\s*(?:"?duration"?\s*:)?\s*["']?([0-9.]+[a-z]+)["']?\s*\}?\s*""")


def policy_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return those of a pod's *annotations* that a policy may read; the others are not stored.

    A value that is too long is cut to one character more than the limit, so that it is refused.
    """
    named = ((key, key.partition("/")[0], value) for key, value in annotations.items())
    return {key: value[: MAX_VALUE_CHARS + 1] for key, name, value in named if name in OF_PEERS or has_domain(name)}


def kept_of_pod(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is kept of a pod's *labels* and *annotations*, the shortest first, in `MAX_POD_BYTES`.

    Only annotations that a policy may read, and as much of a label as an expression compares. Annotations come before
    labels, and some of those that are left out say so.
    """
    wishes, left_out = _within(MAX_POD_BYTES, policy_annotations(annotations))
    room = MAX_POD_BYTES - sum(map(_size, wishes.items()))
    short = {key: value[: MAX_LABEL_CHARS + 1] for key, value in labels.items()}
    return _within(room, short)[0], {**wishes, **dict.fromkeys(left_out[:_MOST_LEFT_OUT], LEFT_OUT)}


def _within(room: int, texts: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return those of *texts* that fit, the shortest first, and the keys of the others."""
    if sum(map(_size, texts.items())) <= room:
        return texts, []
    kept = dict[str, str]()
    for each in sorted(texts.items(), key=lambda item: (_size(item), item)):
        room -= _size(each)
        if room < 0:
            break
        kept[each[0]] = each[1]
    return kept, sorted(key for key in texts if key not in kept and len(key) <= MAX_LABEL_CHARS)


def _size(item: tuple[str, str]) -> int:
    text = "".join(item)
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def has_domain(name: str) -> bool:
    """Whether a domain of `DOMAINS` is at the end of *name*, what an annotation's key has before its slash."""
    return any(name == domain or name.endswith(f".{domain}") for domain in DOMAINS)


def effective(annotations: Mapping[str, str], key: str, container: str) -> tuple[str, str] | None:
    """Return the effective annotation *key* for a container of a pod: its full name and its value.

    Annotations for the container take precedence over those for its pod, and our domain over all others.

    Args:
        annotations: the annotations of the pod.
        key: such as ``prefer-isolated-cpus``.
        container: the name of the container in the pod.
    """
    for domain in DOMAINS:
        for name in (f"{key}.{domain}/container.{container}", f"{key}.{domain}/pod", f"{key}.{domain}"):
            if name in annotations:
                return name, annotations[name]
    return None


def parse_cold_start(text: str) -> float:
    """Parse a value of the annotation ``cold-start``, such as ``duration: 10s`` or ``10s``, to seconds.

    Raises:
        ValueError: it is not a duration, or exceeds `MAX_COLD_START_S`.
    """
    found = _COLD_START.fullmatch(text)
    try:
        seconds = parse_seconds(found[1]) if found else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_COLD_START_S:
        raise ValueError(f"{text!r} must be a duration of at most 1 h, such as 'duration: 10s'")
    return seconds
