"""The commands `status`, `explain`, `devices` and `names` of the control socket.

The state is read on the event loop, and formatted in a thread, piece by piece, so that a thousand containers do not
delay calls.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from criproxy import __version__
from criproxy.api.control_socket import Command, Encoded
from criproxy.api.fit import Wanted, answer
from criproxy.api.situation import Situations
from criproxy.api.views import events, status_check, who
from criproxy.api.views import explain as story
from criproxy.api.views import status as report
from criproxy.api.views.devices import devices as inventory
from criproxy.api.views.situation import Situation
from criproxy.api.views.status import Filter
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.errors import StoreError, UsageError
from criproxy.model.text.notices import Notice, Values, timestamp
from criproxy.node.controller import Controller
from criproxy.node.settings import Trial
from criproxy.placement.answers.choice import Choice, choice_now
from criproxy.wire.stats import Entry, Stats, last_call_s

CONTAINERS, PODS, POLLS, IMAGES, STREAMS, OTHER = "containers", "pods", "polls", "images", "streams", "other"
CLASSES = (CONTAINERS, PODS, POLLS, IMAGES, STREAMS, OTHER)
"""In the order in which they are shown."""
_IMAGE_SERVICE = "ImageService"
_STREAMS = frozenset({"Attach", "Exec", "ExecSync", "GetContainerEvents", "PortForward", "ReopenContainerLog"})
_ASKING = ("List", "Stream", "Get")
"""Beginnings of the names of methods that only ask."""
_POLLS = frozenset({"Version", "Status", "RuntimeConfig", "ContainerStatus", "PodSandboxStatus", "UpdateRuntimeConfig"})
T = TypeVar("T")
LAST_EVENT = (1 << 63) - 1
"""No number of an event is larger."""
UNGUARDED = Notice(
    "devices-unguarded",
    "the policy file has no devices section: criproxy does not restrict access to cards, "
    "and does not know which container has which card",
    wrong=False,
)


@dataclass(slots=True)
class Answers:
    """The handlers of the read-only commands."""

    situations: Situations
    notices: Callable[[], Sequence[Notice]]
    """Returns the notices of parts outside the controller: bypass, configuration."""
    started_s: float = field(default_factory=time.time)
    stats: Sequence[Stats] = ()
    """What the proxies have counted."""
    socket: str = ""
    """The runtime's."""

    def commands(self) -> dict[str, Command]:
        """Return the handlers by command name, for the control socket."""
        return {"status": self.status, "explain": self.explain, "devices": self.devices, "names": self.names} | {
            "who": self.who,
            "events": self.events,
            "fit": self.fit,
        }

    async def status(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy status``: arguments ``namespace``, ``pod``, ``exclusive`` and ``check``.

        Raises:
            UsageError: an argument has the wrong type.
        """
        wanted = Filter(
            namespace=_argument(arguments, "namespace", ""),
            pod=_argument(arguments, "pod", ""),
            exclusive=_argument(arguments, "exclusive", False),
        )
        check = _argument(arguments, "check", False)
        situation = self.situations.now(self.notices())
        front = Front(self.situations.controller, self.stats, self.socket).values()
        return await asyncio.to_thread(status, situation, {**self._head(), **front}, wanted, check=check)

    async def explain(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy explain``: argument ``container``.

        Raises:
            UsageError: the argument is missing.
            CriproxyError: it matches no container, or more than one.
        """
        text = _argument(arguments, "container", "")
        if not text:
            raise UsageError("name a container: NAMESPACE/POD/CONTAINER, or the beginning of its id")
        situation, state = self.situations.now(self.notices()), self.situations.controller.context.state
        notices = [*situation.notices]
        try:
            records = await state.find_history(text)
        except StoreError as error:
            records = []
            notices.append(Notice("history", f"the history cannot be read: {error}"))
        life = await asyncio.to_thread(story.choose, situation.node, records, text)
        if text != life.title:  # the history of other containers with its name was not read yet
            with suppress(StoreError):  # reported already
                records = await state.find_history(life.title)
        waits_for = self.situations.blockers(life.id) if life.container else []
        now: Choice | None = None
        if life.container and not life.is_considered:  # the history does not have its candidates
            try:
                now = await asyncio.to_thread(choice_now, state.node, state.policy, life.container.key)
            except Exception as error:  # noqa: BLE001 (the policy may be an external one; the rest of the answer is still useful)
                notices.append(Notice("policy", f"the policy cannot compare its candidates: {error!r}"))
        head = {**self._head(), "notices": [notice.to_json() for notice in notices]}
        return await _encoded_in_thread(head, partial(story.to_values, situation, life, records, waits_for, now))

    async def devices(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy devices``, without arguments."""
        guard, situation = self.situations.controller.devices, self.situations.now(self.notices())
        classes = guard.rules.classes if guard.rules else tuple(BUILTIN.values())
        notices = [*situation.notices, *([] if guard.rules else [UNGUARDED])]
        head = {
            **self._head(),
            "notices": [notice.to_json() for notice in notices],
            "guarded": guard.rules is not None,
            "holders_known": True,
        }
        stocks = await guard.stocks_now(classes)
        return await _encoded_in_thread(
            head, partial(inventory.to_values, classes, stocks, situation.node, guard.holdings, self._plugin())
        )

    def _plugin(self) -> inventory.Reported | None:
        plugin = self.situations.controller.device_plugin
        return inventory.Reported(plugin.report, plugin.reported_s, plugin.runs) if plugin.report else None

    async def who(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy who``: argument ``cpus``, in kernel notation.

        Raises:
            UsageError: the argument is missing, or no list of CPUs.
        """
        cpus = who.read_cpus(_argument(arguments, "cpus", ""))
        situation = self.situations.now(self.notices())
        head = {**self._head(), "notices": [notice.to_json() for notice in situation.notices]}
        return await _encoded_in_thread(head, partial(who.to_values, situation, cpus))

    async def events(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy events``: arguments ``since_s`` (of the epoch), ``after`` (a number) and ``namespace``.

        Raises:
            UsageError: an argument is of another type.
            StoreError: the history cannot be read.
        """
        since_s, after = _argument(arguments, "since_s", 0.0), _argument(arguments, "after", 0)
        if not 0 <= after <= LAST_EVENT:
            raise UsageError("after: must be the number of an event, such as the 'last' of an earlier answer")
        namespace, state = _argument(arguments, "namespace", ""), self.situations.controller.context.state
        found = await state.history_since(after, events.LEFT_OUT, namespace)
        return await _encoded_in_thread({**self._head(), "notices": []}, partial(events.to_values, *found, since_s))

    async def fit(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy fit``: arguments as `Wanted.read` takes them.

        Raises:
            UsageError: an argument is wrong.
            CriproxyError: the policy failed.
        """
        wanted, situation = Wanted.read(arguments), self.situations.now(self.notices())
        policy = self.situations.controller.context.state.policy
        head = {**self._head(), "policy": situation.policy}
        return await _encoded_in_thread(head, partial(answer, situation, policy, wanted))

    async def names(self, arguments: Mapping[str, Any]) -> list[str]:
        """Answer ``names``: NAMESPACE/POD/CONTAINER of all known containers, for shell completion."""
        return sorted({container.title for container in self.situations.controller.node.containers.values()})

    def _head(self) -> Values:
        return {
            "source": "daemon",
            "host": os.uname().nodename,
            "time": timestamp(time.time()),
            "version": __version__,
            "pid": os.getpid(),
            "started": timestamp(self.started_s),
        }


def status(situation: Situation, head: Values, wanted: Filter, *, check: bool = False) -> Encoded:
    """Return the answer of `status`, encoded row by row, so that other threads can run between them."""
    values = {**head, **report.summary(situation)}
    if check:
        values |= status_check.problems(situation)
    rows = list(report.rows(situation, wanted))
    kept = rows[: report.MAX_CONTAINERS]
    values["omitted"] = len(rows) - len(kept)
    listed = b", ".join(_encoded(row) for row in kept)
    return Encoded(b'%b, "containers": [%b]}' % (_encoded(values)[:-1], listed))


async def _encoded_in_thread(head: Values, values: Callable[[], Values]) -> Encoded:
    """Return *head* with the result of *values*, which is called in a thread."""
    return await asyncio.to_thread(lambda: _encoded({**head, **values()}))


def _encoded(values: Values) -> Encoded:
    return Encoded(json.dumps(values).encode())


def _argument(arguments: Mapping[str, Any], name: str, default: T) -> T:
    value = arguments.get(name, default)
    if type(value) is not type(default):
        raise UsageError(f"{name}: must be a {type(default).__name__}, not {value!r}")
    return value


def class_of(path: str) -> str:
    """One of `CLASSES` for the method *path*, such as ``/runtime.v1.RuntimeService/CreateContainer``."""
    service, _, name = path.removeprefix("/").partition("/")
    if not service.startswith("runtime.v1") or not name:
        return OTHER
    if service.endswith(f".{_IMAGE_SERVICE}"):
        return IMAGES
    if name in _STREAMS:
        return STREAMS
    if name in _POLLS or name.startswith(_ASKING) or name.endswith("Stats"):
        return POLLS
    if "PodSandbox" in name or name.endswith("Pod"):
        return PODS
    return CONTAINERS if "Container" in name else OTHER


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
