"""What happened, as Events of Kubernetes tell it: pure functions of the daemon's views and records.

Events about pods can be read by everybody who may read the namespace: they name no container of other namespaces.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from criproxy.agent import View, bypass_of
from criproxy.agent.signs.wanted import Condition
from criproxy.model.text.amounts import counted, format_seconds
from criproxy.model.text.bounded import bounded
from criproxy.model.text.notices import rfc3339

MOST_CHARS = 900
"""Of a message; the API server accepts 1,024 bytes."""
MOST_NAMED = 5
_PARTS = 3
"""Of a container's name: namespace, pod, container."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that one Event tells."""

    reason: str
    """One word in CamelCase."""
    message: str
    kind: str
    """Node or Pod."""
    name: str
    namespace: str = ""
    uid: str = ""
    """Of the pod; for a Node, its name is used, as the kubelet does."""
    is_warning: bool = True
    at_s: float = 0.0
    """In seconds since the epoch."""

    @property
    def key(self) -> tuple[str, str]:
        """Happenings with the same key are told by one Event."""
        return self.uid or self.name, self.reason


@dataclass(frozen=True, slots=True)
class _State:
    """Something that may be wrong on the node, with the Events about its begin and its end."""

    text: Callable[[View], str]
    """Returns what is wrong; empty if nothing is."""
    begun: str
    ended: str
    ended_text: str


def _bypass(view: View) -> str:
    if not (bypass := bypass_of(view)):
        return ""
    return f"the bypass is on ({bypass['mode']}), so containers are not placed: {bypass.get('reason', '')}"


def _released(view: View) -> str:
    return f"the node is released, so no container is placed: {text}" if (text := view.get("released")) else ""


def _found(kind: str) -> Callable[[View], str]:
    def text(view: View) -> str:
        return next((str(each["text"]) for each in view.get("found") or () if each.get("kind") == kind), "")

    return text


_STATES: Final = (
    _State(_bypass, "BypassOn", "BypassOff", "the bypass is off: containers are placed"),
    _State(_released, "Released", "ReleaseEnded", "the release has ended: containers are placed"),
    _State(_found("config"), "ConfigurationRefused", "ConfigurationAccepted", "the policy file is in effect again"),
    _State(
        _found("device-plugin-config"),
        "DeviceConfigurationRefused",
        "DeviceConfigurationAccepted",
        "the device plugin uses its present configuration",
    ),
)


def of_node(
    before: View | None, now: View, node_name: str, at_s: float, why_back: Callable[[str], str] = lambda _: ""
) -> Iterator[Happening]:
    """Yield what has happened to the node between two views.

    Args:
        before: the former one; None at the start.
        now: the present one.
        node_name: of the Node.
        at_s: when, in seconds since the epoch.
        why_back: returns why the rollout has ended the try of the policy with this hash; empty: it has not.
    """
    for state in _STATES:
        was, text = state.text(before) if before else "", state.text(now)
        if text and not was:
            yield about_node(state.begun, text, node_name, at_s)
        elif was and not text:
            yield about_node(state.ended, state.ended_text, node_name, at_s, is_warning=False)
    tried, has = ((each or {}).get("configuration") or {} for each in (before, now))
    if tried.get("try") and not has.get("try") and has.get("hash") != tried.get("hash"):
        yield about_node("RolledBack", _rolled_back(tried, has, at_s, why_back), node_name, at_s)


def _rolled_back(was: Mapping[str, Any], has: Mapping[str, Any], at_s: float, why_back: Callable[[str], str]) -> str:
    """Return why a configuration that was tried is no longer in effect, and which one is."""
    what, back = (f"{each.get('file')} (hash {each.get('hash')})" for each in (was, has))
    is_over = at_s >= datetime.fromisoformat(str(was["try"]["until"])).timestamp()
    ended = "its time is over, and nobody has kept it" if is_over else "the try was ended before its time"
    why = why_back(str(was.get("hash"))) or ended
    return f"{what} was tried, and is no longer in effect: {why}; now {back} is in effect"


def of_condition(condition: Condition, node_name: str, at_s: float) -> Happening | None:
    """Return what is told of a condition that has just changed its status; None if that was told already."""
    if condition.reason in ("Bypassed", "Released"):
        return None
    is_well = condition.status == "True"
    reason = "CriproxyReady" if is_well else "CriproxyNotReady"
    return about_node(reason, condition.message, node_name, at_s, is_warning=not is_well)


def about_node(reason: str, message: str, node_name: str, at_s: float, *, is_warning: bool = True) -> Happening:
    """Return what is told of the Node."""
    return Happening(reason, _message(message), "Node", node_name, is_warning=is_warning, at_s=at_s)


def of_pod(event: Mapping[str, Any]) -> Happening | None:
    """Return what is told of a record of the daemon's history; None if nothing is, or it is not known of which pod."""
    parts, uid = str(event.get("container", "")).split("/"), event.get("pod_uid")
    tell = _TOLD.get(str(event.get("kind")))
    told = tell(event) if tell else None
    if told is None or not uid or len(parts) != _PARTS or not all(parts):
        return None
    reason, is_warning, text = told
    namespace, pod, container = parts
    at_s = datetime.fromisoformat(str(event["time"])).timestamp()
    message = _message(f"container {container}: {text}")
    return Happening(reason, message, "Pod", pod, namespace, str(uid), is_warning=is_warning, at_s=at_s)


_Told = tuple[str, bool, str]
"""Reason, whether it is a warning, text."""


def _refused(event: Mapping[str, Any]) -> _Told:
    return "PlacementRefused", True, _sentences(event)


def _unpinned(event: Mapping[str, Any]) -> _Told | None:
    since_s = (event.get("facts") or {}).get("unplaced_since_s")
    if not isinstance(since_s, int | float):
        return None
    until_s = event["facts"].get("unplaced_until_s") or datetime.fromisoformat(str(event["time"])).timestamp()
    lasted = format_seconds(max(0, round(until_s - since_s)))
    text = f"it ran without a place of its own, on shared CPUs, from {rfc3339(since_s)} to {rfc3339(until_s)}"
    end = "now it has its place" if event["kind"] == "resized" else "then it ended"
    return "RanUnpinned", True, f"{text} ({lasted}); {end}"


def _quota(event: Mapping[str, Any]) -> _Told | None:
    words = {"begun": ("QuotaExceeded", True), "stopped": ("QuotaStopped", True), "ended": ("QuotaKept", False)}
    found = words.get(str((event.get("facts") or {}).get("state")))
    return (*found, _sentences(event)) if found else None


_TOLD: Final[Mapping[str, Callable[[Mapping[str, Any]], _Told | None]]] = {
    "refused": _refused,
    **dict.fromkeys(("resized", "exited", "gone"), _unpinned),
    "quota": _quota,
}


def would_help(explained: Mapping[str, Any], namespace: str) -> str:
    """Return what would make room for a refused container, from the answer of `explain`; empty if that is unknown.

    Only containers of *namespace* are named.
    """
    choices = explained.get("choices") or ()
    leavers = choices[-1].get("leavers") if choices else None
    if not leavers:
        return ""
    titles = [str(each) for each in leavers.get("containers") or ()]
    count = len(titles) + int(leavers.get("omitted") or 0)
    if not count:
        return str(leavers.get("text", ""))
    own = [each.partition("/")[2] for each in titles if each.startswith(f"{namespace}/")]
    if not own:
        return f"it would fit without {counted(count, 'container')} of other namespaces"
    named, others = ", ".join(own[:MOST_NAMED]), count - min(len(own), MOST_NAMED)
    return f"it would fit without {named}" + (f" and {counted(others, 'other')}" if others else "")


def _sentences(event: Mapping[str, Any]) -> str:
    text = "; ".join(map(str, event.get("sentences") or ()))
    return text.removeprefix(f"{event.get('container')} ")


def _message(text: str) -> str:
    shown: str = bounded(text, MOST_CHARS)
    return shown
