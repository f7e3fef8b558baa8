"""Options and annotations of CRI-RM and nri-plugins that criproxy accepts and reports, but does not act on.

CRI carries CPUs, memory and devices of a container. Its scheduling policy, the interrupts and frequencies of its CPUs
and classes of caches and disks are none of that: see docs/decisions/0020-what-cri-cannot-say.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache

from pydantic import BaseModel

from criproxy.model.text.annotations import DOMAINS
from criproxy.model.text.bounded import bounded_text
from criproxy.placement.options.annotation_keys import KEYS
from criproxy.placement.options.policy_options import Misfit, Path

_MOST_NOTES = 8
"""Of annotations that no policy reads; the others, of which a pod may have thousands, are only counted."""
_MAX_NAME_CHARS = 316
"""The longest that Kubernetes lets an annotation have."""
_LONGEST_KEY = 63
_FREQUENCIES = "criproxy does not set CPU frequencies"
_SCHEDULING = "criproxy does not set scheduling classes, because CRI has no field for them"
_INTERRUPTS = "criproxy does not move interrupts"
_CLASSES = "criproxy does not set classes for caches, memory bandwidth or disks"
_EXPORT = "criproxy does not export NodeResourceTopology objects"
_PATHS = "criproxy does not look at the paths of mounts and devices"

OPTIONS: Mapping[str, str] = {
    "cpu_class": _FREQUENCIES,
    "cpu_classes": _FREQUENCIES,
    "idle_cpu_class": _FREQUENCIES,
    "shared_pool_cpu_class": _FREQUENCIES,
    "reserved_pool_cpu_class": _FREQUENCIES,
    "default_exclusive_cpu_class": _FREQUENCIES,
    "turbo_domain": _FREQUENCIES,
    "scheduling_class": _SCHEDULING,
    "scheduling_classes": _SCHEDULING,
    "namespace_scheduling_classes": _SCHEDULING,
    "pod_qos_scheduling_classes": _SCHEDULING,
    "irq_mode": _INTERRUPTS,
    "irq_claim": _INTERRUPTS,
    "controllable_interrupts": _INTERRUPTS,
    "show_containers_in_nrt": _EXPORT,
}
"""Why options that are understood, so that a configuration can move over, do nothing; by their names in the models."""

ANNOTATIONS: Mapping[str, str] = {
    "cpu-class": _FREQUENCIES,
    "scheduling-class": _SCHEDULING,
    "irq-affinity": _INTERRUPTS,
    "rdtclass": _CLASSES,
    "blockioclass": _CLASSES,
    "toptierlimit": _CLASSES,
    "allow.topologyhints": _PATHS,
    "deny.topologyhints": _PATHS,
}
"""Keys of annotations."""


def option_notes(groups: Iterable[tuple[Path, BaseModel]]) -> Iterator[Misfit]:
    """A sentence for each option that is given in one of *groups* and not acted on.

    Args:
        groups: models, and what leads to each in the policy file.
    """
    for path, group in groups:
        for name, field in type(group).model_fields.items():
            if name in OPTIONS and name in group.model_fields_set:
                yield Misfit((*path, field.alias or name), f"has no effect: {OPTIONS[name]}")


def annotation_notes(annotations: Iterable[str], container: str) -> Iterator[str]:
    """A sentence for each of a pod's *annotations* about *container* that no policy reads.

    Args:
        annotations: their full names, only those of `DOMAINS`.
        container: its name in the pod.
    """
    scopes = ("", "pod", f"container.{container}")
    parsed = ((name, *_parsed(name)) for name in annotations)
    unread = [(name, key) for name, key, scope in parsed if key not in KEYS and scope in scopes]
    for name, key in unread[:_MOST_NOTES]:
        near = get_close_matches(key, KEYS, n=1) if len(key) <= _LONGEST_KEY else []
        why = ANNOTATIONS.get(key) or "no policy reads it" + (f"; did you mean {near[0]!r}?" if near else "")
        yield f"annotation {bounded_text(name, _MAX_NAME_CHARS)} has no effect: {why}"
    if len(unread) > _MOST_NOTES:
        yield f"{len(unread) - _MOST_NOTES} more annotations have no effect"


@lru_cache(maxsize=1024)
def _parsed(name: str) -> tuple[str, str]:
    """The key and the scope of an annotation; the old form is ``DOMAIN/KEY``."""
    prefix, _, rest = name.partition("/")
    if prefix in DOMAINS:
        return rest, ""
    domain = next((domain for domain in DOMAINS if prefix.endswith(f".{domain}")), "")
    return prefix.removesuffix(f".{domain}"), rest
