"""The node of a running daemon, and the commands of the control socket that show it.

The state is read on the event loop, and formatted in a thread, piece by piece, so that a thousand containers do not
delay calls.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from criproxy.agent import QUERIES
from criproxy.api import collector, controls, head
from criproxy.api.notices import ControllerNotices
from criproxy.api.views import devices, events, explain, status
from criproxy.api.views.devices import Inventory
from criproxy.api.views.situation import Situation, argument
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.errors import StoreError, UsageError
from criproxy.model.machine.topology import Topology
from criproxy.model.text.notices import Notice, Values, timestamp
from criproxy.node.configuration.reload import Reload
from criproxy.node.controller import Controller
from criproxy.node.settings import Trial
from criproxy.placement.answers.choice import Choice, choice_now
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.process.control_socket import Command, Encoded
from criproxy.wire.stats import Entry, Stats, last_call_s

UNGUARDED = Notice(
    "devices-unguarded",
    "the policy file has no devices section: criproxy does not restrict access to cards, "
    "and does not know which container has which card",
    wrong=False,
)


async def nothing_beside() -> Sequence[Notice]:
    """Return no notices: there are no parts beside the controller."""
    return ()


@dataclass(slots=True, repr=False)
class LiveNode:
    """The node of a controller: takes snapshots of it on the event loop, and answers commands."""

    controller: Controller
    beside: Callable[[], Awaitable[Sequence[Notice]]] = nothing_beside
    """Returns the notices of parts outside the controller: bypass, sockets, the kubelet."""
    started_s: Callable[[], float] = time.time
    """Returns when the daemon started, in seconds since the epoch."""
    stats: Sequence[Stats] = ()
    """What the proxies have counted; none where no sockets are served."""
    runtime_socket: str = ""
    plugin: Callable[[], Values | None] = lambda: None
    """Returns how the daemon is connected as a plugin of the runtime; None if it serves calls instead."""
    bypass: Callable[[], Values] = lambda: {"bypass": False, "mode": "off", "since": "", "reason": ""}
    """Returns whether the bypass is on, as `criproxy bypass status`."""
    reload: Reload | None = None
    """Knows the policy file; None where none is followed."""
    _known: tuple[Policy, Topology, tuple[str, ...]] | None = None
    """What a machine lacks that a policy asks for."""

    def now(self, beside: Sequence[Notice] = ()) -> Situation:
        """Return the present situation, with the notices *beside* in addition to those of the controller."""
        controller = self.controller
        state, node = controller.context.state, controller.node
        refusals, omitted = state.refusals()
        return Situation(
            node=node,
            policy=controller.context.settings.policy_name,
            follows=controller.policy_switch.active,
            reserved=options_of(state.policy).reserved(node.topology),
            reserved_later=controller.policy_switch.reserved_later,
            troubles=controller.reconciler.troubles(),
            starting=controller.context.in_flight.sent(),
            notices=(*beside, *ControllerNotices(controller).now()),
            refusals=refusals,
            refusals_omitted=omitted,
            lacking=partial(self._lacking, state.policy, node.topology),
            resizes=controller.refused_resizes.pending(node),
            placer=state.policy,
        )

    def blockers(self, key: str) -> list[str]:
        """Return the names of the containers that still use CPUs granted to the container *key*."""
        controller = self.controller
        return [controller.node.containers[other].title for other in controller.reconciler.blockers(key)]

    async def status(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy status``: arguments ``namespace``, ``pod``, ``exclusive`` and ``check``.

        Raises:
            UsageError: an argument has the wrong type.
        """
        situation = replace(self.now(await self.beside()), front=self.front())
        return await self._encoded(partial(status.collect, situation, arguments))

    async def explain(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy explain``: argument ``container``.

        Raises:
            UsageError: the argument is missing.
            CriproxyError: it matches no container, or more than one.
        """
        text = argument(arguments, "container", "")
        if not text:
            raise UsageError("name a container: NAMESPACE/POD/CONTAINER, or the beginning of its id")
        situation, state = self.now(await self.beside()), self.controller.context.state
        notices = [*situation.notices]
        try:
            records = await state.find_history(text)
        except StoreError as error:
            records = []
            notices.append(Notice("history", f"the history cannot be read: {error}"))
        life = await asyncio.to_thread(explain.choose, situation.node, records, text)
        if text != life.title:  # the history of other containers with its name was not read yet
            with suppress(StoreError):  # reported already
                records = await state.find_history(life.title)
        waits_for = self.blockers(life.id) if life.container else []
        now: Choice | None = None
        if life.container and not life.is_considered:  # the history does not have its candidates
            try:
                now = await asyncio.to_thread(choice_now, state.node, state.policy, life.container.key)
            except Exception as error:  # noqa: BLE001 (the policy may be an external one; the rest of the answer is still useful)
                notices.append(Notice("policy", f"the policy cannot compare its candidates: {error!r}"))
        situation = replace(situation, notices=notices)
        of_classes = await controls.of_container(self.controller, life.container)
        return await self._encoded(partial(explain.to_values, situation, life, records, waits_for, now, of_classes))

    async def devices(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy devices``, without arguments."""
        situation, is_guarded = self.now(await self.beside()), self.controller.devices.rules is not None
        notices = [*situation.notices, *([] if is_guarded else [UNGUARDED])]
        head, known = {"notices": [each.to_json() for each in notices], "guarded": is_guarded}, await self.inventory()
        return await self._encoded(lambda: {**head, **devices.to_values(known, situation.node)})

    async def inventory(self, *, of_plugin: bool = False) -> Inventory:
        """Return the cards; *of_plugin*: none, and no report, unless our device plugin runs."""
        guard, plugin = self.controller.devices, self.controller.device_plugin
        classes = guard.rules.classes if guard.rules else tuple(BUILTIN.values())
        report = None if of_plugin and not plugin.runs else plugin.report
        return Inventory(
            classes=classes,
            stocks=await guard.stocks_now(classes) if report or not of_plugin else {},
            holdings=guard.holdings,
            report=report,
            reported_s=plugin.reported_s,
            runs=plugin.runs,
            ended=plugin.has_ended,
        )

    async def events(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy events``: arguments ``since_s`` (of the epoch), ``after`` (a number) and ``namespace``.

        Raises:
            UsageError: an argument is of another type.
            StoreError: the history cannot be read.
        """
        since_s, after, namespace = events.read(arguments)
        found = await self.controller.context.state.history_since(after, events.LEFT_OUT, namespace)
        node = self.controller.node
        return await self._encoded(lambda: {"notices": [], **events.to_values(*found, since_s, node)})

    async def names(self, arguments: Mapping[str, Any]) -> list[str]:
        """Answer ``names``: NAMESPACE/POD/CONTAINER of all known containers, for shell completion."""
        return sorted({container.title for container in self.controller.node.containers.values()})

    async def show(
        self, collect: Callable[[Situation, Mapping[str, Any]], Values], arguments: Mapping[str, Any]
    ) -> Encoded:
        """Answer a command that needs only a snapshot; raises what *collect* raises for wrong arguments."""
        return await self._encoded(partial(collect, self.now(await self.beside()), arguments))

    async def _encoded(self, values: Callable[[], Values]) -> Encoded:
        """Return the answer with the result of *values*, which is called in a thread."""
        known = self.head()
        return await asyncio.to_thread(lambda: encoded({**known, **values()}))

    def head(self) -> Values:
        """Return what each answer begins with: which daemon answers, and when."""
        return head("daemon", time.time(), os.getpid(), timestamp(self.started_s()))

    def _lacking(self, policy: Policy, topology: Topology) -> tuple[str, ...]:
        """What the machine lacks; computed once for each policy and machine, in the thread that asks."""
        known = self._known
        if known is None or known[0] is not policy or known[1] is not topology:
            self._known = known = (policy, topology, tuple(_lacking(policy, topology)))
        return known[2]

    def front(self) -> Values:
        """Return what calls came, which runtime answers, which policy file is in effect."""
        name, version = self.controller.context.runtime.answered
        in_force = self.controller.context.in_force
        loaded = in_force.loaded
        entries = [entry for stats in self.stats for entry in (*stats.entries.values(), stats.other)]
        kubelet = calls_by_class(entries, last_call_s(self.stats), time.monotonic(), time.time())
        at = timestamp(loaded.at_s) if loaded.hash else None
        return {
            "kubelet": kubelet if self.stats else None,
            "plugin": self.plugin(),
            "runtime": {"name": name, "version": version, "socket": self.runtime_socket},
            "configuration": {"file": loaded.file, "hash": loaded.hash, "loaded": at, **tried(in_force.trial)},
            "agent": self.controller.agent.to_json(),
            "controls": controls.to_values(self.controller),
        }


def commands(live: LiveNode) -> Mapping[str, Command]:
    """Return the handlers by command name, for the control socket.

    Those that are no methods need only a snapshot; see `collector`.
    """
    own = {
        "status": live.status,
        "explain": live.explain,
        "devices": live.devices,
        "events": live.events,
        "names": live.names,
    }
    shown = [name for name in QUERIES if name not in (*own, "usage")]
    return own | {name: partial(live.show, collector(name)) for name in shown}


def _lacking(policy: Policy, topology: Topology) -> list[str]:
    """Sentences on what *policy* asks for and *topology* lacks, or on a failure of the policy itself."""
    from criproxy.config.validation_errors import dotted

    try:
        found = list(options_of(policy).misfits(topology))
    except Exception as error:  # noqa: BLE001 (a policy of another package may raise anything)
        return [f"the policy failed to compare its options with the machine: {error!r}"]
    head = "the machine lacks something that the policy file names"
    return [f"{head}: {dotted(path)}: {text}" for path, text in found]


def encoded(values: Values) -> Encoded:
    """Encode an answer piece by piece, each item of a list on its own, so that other threads can run in between."""
    return Encoded(b"{%b}" % b", ".join(_items(values)))


def _items(values: Values) -> Iterator[bytes]:
    for key, value in values.items():
        if isinstance(value, list):
            yield b"%b: [%b]" % (json.dumps(key).encode(), b", ".join(json.dumps(each).encode() for each in value))
        else:
            yield b"%b: %b" % (json.dumps(key).encode(), json.dumps(value).encode())


CONTAINERS, PODS, POLLS, IMAGES, STREAMS, OTHER = "containers", "pods", "polls", "images", "streams", "other"
CLASSES = (CONTAINERS, PODS, POLLS, IMAGES, STREAMS, OTHER)
"""In the order in which they are shown."""
_IMAGE_SERVICE = "ImageService"
_STREAMS = frozenset({"Attach", "Exec", "ExecSync", "GetContainerEvents", "PortForward", "ReopenContainerLog"})
_ASKING = ("List", "Stream", "Get")
"""Beginnings of the names of methods that only ask."""
_POLLS = frozenset({"Version", "Status", "RuntimeConfig", "ContainerStatus", "PodSandboxStatus", "UpdateRuntimeConfig"})


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


def calls_by_class(entries: Iterable[Entry], last_s: float | None, monotonic_s: float, now_s: float) -> Values:
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

    def last_call(at_s: float | None) -> Values:
        if at_s is None:
            return {"last_call": None, "last_call_s": None}
        age_s = max(0.0, monotonic_s - at_s)
        return {"last_call": timestamp(now_s - age_s), "last_call_s": round(age_s, 3)}

    classes = {word: {"calls": counts[word], **last_call(last_of_s.get(word))} for word in CLASSES}
    return {**last_call(last_s), "classes": classes}


def tried(trial: Trial | None) -> Values:
    """Return whether the configuration in effect is kept in place of the policy file, or tried, and until when."""
    if trial is None or not trial.until_s:
        return {"kept": trial is not None, "try": None}
    back = {"file": trial.back_file, "hash": trial.back_hash}
    until = timestamp(trial.ends_s)
    return {"kept": False, "try": {"until": until, "left_s": round(trial.left_s, 3), "back": back}}
