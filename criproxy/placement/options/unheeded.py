"""Options and annotations of CRI-RM and nri-plugins that criproxy accepts and reports, but does not act on."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache

from pydantic import BaseModel

from criproxy.model.text.annotations import DOMAINS
from criproxy.model.text.bounded import bounded_text
from criproxy.placement.options.annotation_keys import CLASS_KEYS, KEYS
from criproxy.placement.options.policy_options import Misfit, Path

_MOST_NOTES = 8
"""Of annotations that no policy reads; the others, of which a pod may have thousands, are only counted."""
_MAX_NAME_CHARS = 316
"""The longest that Kubernetes lets an annotation have."""
_LONGEST_KEY = 63
_TURBO = "criproxy does not divide turbo frequencies; maxFreq of CPU classes limits them"
_NO_CLASSES = "the policy file has no classes"
_EXPORT = "criproxy does not export NodeResourceTopology objects"
_PATHS = "criproxy does not look at the paths of mounts and devices"

OPTIONS: Mapping[str, str] = {"turbo_domain": _TURBO, "show_containers_in_nrt": _EXPORT}
"""Why options that are understood, so that a configuration can move over, do nothing; by their names in the models."""

ANNOTATIONS: Mapping[str, str] = {
    "irq-affinity": "interrupts are claimed by classes, see irq-class",
    "toptierlimit": "criproxy does not limit how much of a kind of memory a container has",
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


def annotation_notes(annotations: Iterable[str], container: str, *, classes: bool = False) -> Iterator[str]:
    """A sentence for each of a pod's *annotations* about *container* that no policy reads.

    Args:
        annotations: their full names; those outside of `DOMAINS` may have an effect elsewhere, and need no word.
        container: its name in the pod.
        classes: whether the policy file has classes.
    """
    scopes = ("", "pod", f"container.{container}")
    parsed = ((name, *_parsed(name)) for name in annotations)
    read = KEYS.keys() | CLASS_KEYS if classes else KEYS.keys() - CLASS_KEYS
    unread = [(name, key) for name, key, scope in parsed if key and key not in read and scope in scopes]
    for name, key in unread[:_MOST_NOTES]:
        near = get_close_matches(key, KEYS, n=1) if len(key) <= _LONGEST_KEY and key not in CLASS_KEYS else []
        why = ANNOTATIONS.get(key) or (_NO_CLASSES if key in CLASS_KEYS else "no policy reads it")
        why += f"; did you mean {near[0]!r}?" if near and key not in ANNOTATIONS else ""
        yield f"annotation {bounded_text(name, _MAX_NAME_CHARS)} has no effect: {why}"
    if len(unread) > _MOST_NOTES:
        yield f"{len(unread) - _MOST_NOTES} more annotations have no effect"


@lru_cache(maxsize=1024)
def _parsed(name: str) -> tuple[str, str]:
    """The key and the scope of an annotation; the old form is ``DOMAIN/KEY``. The key is empty outside of `DOMAINS`."""
    prefix, _, rest = name.partition("/")
    if prefix in DOMAINS:
        return rest, ""
    domain = next((domain for domain in DOMAINS if prefix.endswith(f".{domain}")), "")
    return prefix.removesuffix(f".{domain}") if domain else "", rest
