"""The node as a daemon left it on disk: the answers of its commands, used when it does not answer."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.agent import QUERIES
from criproxy.api import collector, head
from criproxy.api.views import devices, events, explain
from criproxy.api.views.situation import Situation, argument
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.holdings import Holdings
from criproxy.errors import CriproxyError
from criproxy.host.cards import find_cards_within
from criproxy.host.machine import discover
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import LastConfiguration, Node
from criproxy.model.record import Kind
from criproxy.model.text.notices import Notice, Refusal, Values, timestamp
from criproxy.node.configuration.load import DEFAULT_CONFIG, Configuration, rebuilt
from criproxy.node.record.refusals import REFUSAL_S
from criproxy.node.settings import Settings
from criproxy.placement.invariants import owned_by_pod
from criproxy.placement.options.policy_options import options_of
from criproxy.store.configurations import read_good, read_tried
from criproxy.store.history import find, newest, refused_since, since, titles
from criproxy.store.holder import still_running
from criproxy.store.reader import Reader, open_reader

_ONLY_OF_DAEMONS = ("fit", "names", "usage")
"""Queries for which the state on disk does not suffice."""


@dataclass(frozen=True, slots=True)
class StoredNode:
    """The node as a daemon left it in its state directory; answers as the daemon would, which does not answer.

    All answers raise CriproxyError if the state cannot be read, and UsageError for wrong arguments.
    """

    state_dir: Path
    host_root: Path
    reason: str
    """Why the daemon does not answer."""
    is_removed: bool = False
    """Whether a daemon listens on a socket whose file was removed."""
    config: Path | None = None
    """The policy file or directory with the device classes; None: the usual one, if it exists."""

    def answer(self, command: str, arguments: Mapping[str, Any]) -> Values:
        """Answer a command of the control socket that shows the node."""
        if command == "devices":
            return self._devices()
        if command not in QUERIES or command in _ONLY_OF_DAEMONS:
            raise CriproxyError(f"{self.reason}; only a running daemon answers {command}")
        own = {"explain": self._explain, "events": self._events}
        with self._reader() as reader:
            if command in own:
                return {**head("store", reader.saved_s), **own[command](reader, arguments)}
            situation = self._situation(reader, of_cpus=True)
            return {**head("store", reader.saved_s), **collector(command)(situation, arguments)}

    def _explain(self, reader: Reader, arguments: Mapping[str, Any]) -> Values:
        text, situation = argument(arguments, "container", ""), self._situation(reader)
        life = explain.choose(situation.node, find(reader.connection, text), text, titles(reader.connection))
        return explain.to_values(situation, life, find(reader.connection, life.title))

    def _events(self, reader: Reader, arguments: Mapping[str, Any]) -> Values:
        since_s, after, namespace = events.read(arguments)
        found = since(reader.connection, after, events.LEFT_OUT, namespace)
        node = self._situation(reader).node
        return {"notices": [self._notice(reader).to_json()], **events.to_values(*found, since_s, node)}

    def _devices(self) -> Values:
        """Return the cards of this machine, without what is unknown."""
        classes, notices = _classes(self.config)
        node, holdings = None, Holdings()
        stocks = find_cards_within(classes, self.host_root)
        inventory = devices.Inventory(classes=classes, stocks=stocks, holdings=holdings)
        try:
            with self._reader() as reader:
                situation, known = self._situation(reader), head("store", reader.saved_s)
                lives = [container.life for container in situation.node.containers.values()]
                holdings.recall(situation.node, newest(reader.connection, Kind.DEVICES, lives))
        except CriproxyError as error:
            notices = [Notice("daemon-down", f"the cards of containers are unknown: {error}"), *notices]
            known = {"source": "machine", "time": timestamp(time.time()), "version": __version__, "pid": None}
        else:
            node, notices = situation.node, [*situation.notices, *notices]
        known |= {"started": None, "notices": [notice.to_json() for notice in notices], "guarded": None}
        return {**known, **devices.to_values(inventory, node)}

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        try:
            with open_reader(self.state_dir) as reader:
                yield reader
        except CriproxyError as error:
            raise CriproxyError(f"{self.reason}; {error}") from error

    def _situation(self, reader: Reader, *, of_cpus: bool = False) -> Situation:
        """Return what was stored; *of_cpus*: for an answer that says which CPUs are free, or that this is unknown."""
        node, notices = reader.node(discover(self.host_root)), [self._notice(reader)]
        left = as_left(self.state_dir, node, self.host_root)
        reserved = options_of(left.policy).reserved(node.topology) if left else NO_CPUS
        if of_cpus and left is None:
            text = "it is unknown which CPUs are reserved or free: the state does not say which policy was in effect"
            notices.append(Notice("reserved-unknown", text, wrong=False))
        return Situation(
            node=node,
            reserved=reserved,
            knows_reserved=left is not None,
            reserved_later={} if left is None or left.settings.apply_all else owned_by_pod(node, reserved),
            placer=left.policy if left else None,
            notices=notices,
            refusals=[Refusal(*row) for row in refused_since(reader.connection, reader.saved_s - REFUSAL_S)],
        )

    def _notice(self, reader: Reader) -> Notice:
        why = "; ".join(filter(None, (self.reason, still_running(self.state_dir, is_removed=self.is_removed))))
        text = f"{why}. The rest was stored in {reader.path} at {timestamp(reader.saved_s)}"
        return Notice("daemon-down", text)


def _classes(config: Path | None) -> tuple[Sequence[DeviceClass], list[Notice]]:
    """The classes that a policy file names, else those that are built in; and why, if something is wrong with it."""
    builtin = tuple(BUILTIN.values())
    if config is None and not os.path.lexists(DEFAULT_CONFIG):
        return builtin, []
    from criproxy.config.load import load

    try:
        options = load(config or DEFAULT_CONFIG, os.uname().nodename).common.devices
    except CriproxyError as error:
        text = f"only the built-in classes are shown, as the policy file cannot be used: {error}"
        return builtin, [Notice("config", text.splitlines()[0])]
    return (options.rules().classes if options else builtin), []


def as_left(state_dir: Path, node: Node, host_root: Path) -> Configuration | None:
    """Return the configuration that placed the containers of *node*, which was read from *state_dir*. May block.

    None if it is unknown: neither the last good file nor what was tried is that configuration, or the machine no longer
    has what it needs. The policy file itself does not count: it may have changed since.
    """
    digest, tried = LastConfiguration.parse(node.configuration).digest, read_tried(state_dir)
    for good in (tried.good if tried else None, read_good(state_dir)):
        if digest and good is not None and good.configuration == digest:
            with suppress(CriproxyError, ValueError):
                return rebuilt(good, node.topology, Settings(host_root=host_root))
    return None
