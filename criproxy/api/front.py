"""What an engineer looks for first: whether the kubelet goes through criproxy, in front of what, and by which file."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criproxy.cri.methods.method_classes import CLASSES, class_of
from criproxy.model.text.notices import Values, timestamp
from criproxy.node.controller import Controller
from criproxy.node.settings import Trial
from criproxy.wire.stats import Entry, Stats, last_call_s


@dataclass(frozen=True, slots=True)
class Front:
    """The beginning of the answer of `status`."""

    controller: Controller
    stats: Sequence[Stats] = ()
    """Of the proxies; none where no sockets are served."""
    socket: str = ""
    """The runtime's."""

    def values(self) -> Values:
        """What calls came, which runtime answers, which policy file is in effect."""
        return {"kubelet": self._kubelet(), "runtime": self._runtime(), "configuration": self._configuration()}

    def _kubelet(self) -> Values | None:
        if not self.stats:
            return None
        entries = [entry for stats in self.stats for entry in (*stats.entries.values(), stats.other)]
        return called(entries, last_call_s(self.stats), time.monotonic(), time.time())

    def _runtime(self) -> Values:
        name, version = self.controller.context.runtime.answered
        return {"name": name, "version": version, "socket": self.socket}

    def _configuration(self) -> Values:
        in_force = self.controller.context.in_force
        loaded = in_force.loaded
        at = timestamp(loaded.at_s) if loaded.hash else None
        return {"file": loaded.file, "hash": loaded.hash, "loaded": at, **tried(in_force.trial)}


def tried(trial: Trial | None) -> Values:
    """Return whether the configuration in effect is kept in place of the policy file, or tried, and until when."""
    if trial is None or not trial.until_s:
        return {"kept": trial is not None, "try": None}
    back = {"file": trial.back_file, "hash": trial.back_hash}
    until = timestamp(trial.ends_s)
    return {"kept": False, "try": {"until": until, "left_s": round(trial.left_s, 3), "back": back}}


def called(entries: Iterable[Entry], last_s: float | None, monotonic_s: float, now_s: float) -> Values:
    """How many calls came and when the last one came, in all and by class.

    Args:
        entries: of all methods.
        last_s: as `wire.stats.last_call_s`.
        monotonic_s: now, on the clock of `Entry.last_s`.
        now_s: the same moment in seconds since the epoch.
    """
    counts, last_of_s = dict.fromkeys(CLASSES, 0), dict[str, float]()
    for entry in entries:
        word = class_of(entry.method)
        counts[word] += entry.calls + entry.bypassed + entry.earlier.total()
        if entry.last_s is not None:
            last_of_s[word] = max(entry.last_s, last_of_s.get(word, entry.last_s))

    def told(at_s: float | None) -> Values:
        if at_s is None:
            return {"last_call": None, "last_call_s": None}
        age_s = max(0.0, monotonic_s - at_s)
        return {"last_call": timestamp(now_s - age_s), "last_call_s": round(age_s, 3)}

    classes = {word: {"calls": counts[word], **told(last_of_s.get(word))} for word in CLASSES}
    return {**told(last_s), "classes": classes}
