"""What a Node object should say about criproxy, according to the daemon: pure functions of its view."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from criproxy.agent import View, bypass_of
from criproxy.agent.kubernetes.request import Object
from criproxy.model.text.bounded import bounded_text

TAINT: Final = "criproxy.io/not-ready"
CONDITION: Final = "CriproxyReady"
ANNOTATION: Final = "devices.criproxy.io/vgpus"
OWN_PREFIX: Final = "nvidia.com/"
"""Of the labels that are written."""
NOT_OURS: Final = ("nvidia.com/device-plugin.config", "nvidia.com/gpu.deploy.")
"""Beginnings of labels that people and operators set."""
_NFD: Final = ("nfd.node.kubernetes.io/", "feature.node.kubernetes.io/")
"""Beginnings of the annotations and labels of node-feature-discovery."""
MOST_MESSAGE_CHARS = 900
MOST_ANNOTATION_CHARS = 32_768
"""All annotations of an object together have at most 256 KiB."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a Node, without its times."""

    status: str
    """True, False or Unknown."""
    reason: str
    """One word in CamelCase."""
    message: str

    def to_json(self, since: str, now: str) -> Object:
        """Return the condition as in an object; the times are RFC 3339."""
        return {"type": CONDITION, **asdict(self), "lastHeartbeatTime": now, "lastTransitionTime": since}


WELL: Final = Condition("True", "CriproxyReady", "the kubelet goes through criproxy, and all is well")


def condition_of(view: View | None, problem: str) -> Condition:
    """Return the condition.

    Args:
        view: the last view; None if the daemon has never answered.
        problem: why it does not answer now; empty if it does.
    """
    if view is None or problem:
        return _condition("Unknown", "DaemonDoesNotAnswer", problem or "the daemon has not answered yet")
    if bypass := bypass_of(view):
        text = f"the bypass is on ({bypass['mode']}) since {bypass.get('since', '')}: {bypass.get('reason', '')}"
        return _condition("False", "Bypassed", text)
    if released := view.get("released"):
        return _condition("False", "Released", f"the node is released, so no container is placed: {released}")
    kubelet = view.get("kubelet") or {}
    if not kubelet.get("through"):
        last = kubelet.get("last_call")
        said = f"its last call was at {last}" if last else "it has never called criproxy since criproxy started"
        return _condition("False", "KubeletGoesPast", f"the kubelet does not go through criproxy: {said}")
    if sentence := view.get("ready"):
        return _condition("False", "NotReady", str(sentence))
    return WELL


def _condition(status: str, reason: str, message: str) -> Condition:
    return Condition(status, reason, bounded_text(message, MOST_MESSAGE_CHARS))


def known_condition(node: Object) -> tuple[Condition, str] | None:
    """Return our condition of a whole Node object, and since when it has its status; None if it has none."""
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == CONDITION:
            known = Condition(*(str(each.get(key, "")) for key in ("status", "reason", "message")))
            return known, str(each.get("lastTransitionTime", ""))
    return None


def without_taint(taints: Sequence[Object]) -> list[Object] | None:
    """Return the other taints; None if our startup taint is not among *taints*, so that nothing is to be done."""
    others = [each for each in taints if each.get("key") != TAINT]
    return others if len(others) < len(taints) else None


@dataclass(frozen=True, slots=True)
class Metadata:
    """Labels and annotations that the agent writes."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def is_in(self, node: Object) -> bool:
        """Whether a Node object has all of it."""
        found = node["metadata"]
        return _is_part(self.labels, found.get("labels")) and _is_part(self.annotations, found.get("annotations"))


def _is_part(wanted: Mapping[str, str], found: Mapping[str, str] | None) -> bool:
    return wanted.items() <= (found or {}).items()


def metadata_of(view: View | None, owned: Metadata, node: Object, *, labels: bool) -> Metadata:
    """Return what the agent should have written to the Node.

    Args:
        view: the last view; what it does not know stays as it is.
        owned: what the agent has written before.
        node: the Node object, or its metadata: where node-feature-discovery writes labels, the agent writes none.
        labels: whether labels are wanted.
    """
    reported, vgpus = (view or {}).get("labels"), (view or {}).get("vgpus")
    # An empty value, such as that of a missing third part of a version, says nothing.
    wanted = owned.labels if reported is None else {k: str(v) for k, v in reported.items() if v and is_ours(k)}
    inventory = {ANNOTATION: str(vgpus)} if vgpus and len(vgpus) <= MOST_ANNOTATION_CHARS else {}
    return Metadata(
        labels=wanted if labels and not has_nfd(node) else {},
        annotations=owned.annotations if vgpus is None else inventory,
    )


def is_ours(label: str) -> bool:
    """Whether the agent may write this label."""
    return label.startswith(OWN_PREFIX) and not label.startswith(NOT_OURS)


def has_nfd(node: Object) -> bool:
    """Whether node-feature-discovery writes to this Node."""
    metadata = node["metadata"]
    names = (*(metadata.get("annotations") or ()), *(metadata.get("labels") or ()))
    return any(name.startswith(_NFD) for name in names)


def owned_by(node: Object, manager: str) -> Metadata | None:
    """Return what *manager* has applied to a whole Node object, as far as it may be ours; None if nothing was applied.

    It is in ``metadata.managedFields``, so that it is known after a restart of the agent.
    """
    metadata = node["metadata"]
    for entry in metadata.get("managedFields") or ():
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (manager, "Apply", ""):
            fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
            return Metadata(
                labels=_values(fields.get("f:labels") or (), metadata.get("labels") or {}),
                annotations=_values(fields.get("f:annotations") or (), metadata.get("annotations") or {}),
            )
    return None


def _values(fields: Iterable[str], values: Mapping[str, str]) -> dict[str, str]:
    names = (name.removeprefix("f:") for name in fields)
    return {name: values[name] for name in names if name in values}
