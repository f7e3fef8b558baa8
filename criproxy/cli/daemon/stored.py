"""Answers from the daemon's state on disk, in the same format as its own, used when it does not answer."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.api.views import events, who
from criproxy.api.views.devices import devices as inventory
from criproxy.api.views.explain import choose, to_values
from criproxy.api.views.situation import Situation
from criproxy.api.views.status import Filter, rows, summary
from criproxy.api.views.status_check import problems
from criproxy.cli.daemon.client import NoDaemon
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.holdings import Holdings
from criproxy.errors import CriproxyError, reason_of
from criproxy.host.devices.cards import find_cards_within
from criproxy.host.machine import discover
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.last_configuration import LastConfiguration
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.model.text.notices import Notice, Refusal, timestamp
from criproxy.node.configuration.load import DEFAULT_CONFIG, Configuration, rebuilt
from criproxy.node.record.refusals import REFUSAL_S
from criproxy.node.settings import Settings
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.rules.reserved import owned_by_pod
from criproxy.store.last_good import read_good
from criproxy.store.reader import Reader, open_reader
from criproxy.store.store import LOCK_NAME, is_release
from criproxy.store.stuck import is_ending, why_it_stays
from criproxy.store.tried import read_tried

Values = dict[str, Any]


class Stored:
    """The state in *state_dir* of a daemon that does not answer because of *reason*."""

    def __init__(self, state_dir: Path, host_root: Path, reason: NoDaemon) -> None:
        self._state_dir = state_dir
        self._host_root = host_root
        self._reason = reason

    def status(self, wanted: Filter, *, check: bool = False) -> Values:
        """Return an answer to `status`.

        Raises:
            CriproxyError: the state cannot be read, either.
        """
        with self._reader() as reader:
            situation, head = self._situation(reader, of_cpus=True), self._head(reader)
        values = {**head, "kubelet": None, "runtime": None, "configuration": None, **summary(situation)}
        if check:
            values |= problems(situation)
        return {**values, "omitted": 0, "containers": list(rows(situation, wanted))}

    def explain(self, text: str) -> Values:
        """Return an answer to `explain`.

        Raises:
            CriproxyError: *text* matches no container, or several; or the state cannot be read, either.
        """
        with self._reader() as reader:
            situation, head = self._situation(reader), self._head(reader)
            life = choose(situation.node, reader.find(text), text, reader.titles())
            records = reader.find(life.title)
        values = to_values(situation, life, records)
        return {**head, "notices": [notice.to_json() for notice in situation.notices], **values}

    def who(self, cpus: CpuSet) -> Values:
        """As the daemon's answer to `who`.

        Raises:
            CriproxyError: the state cannot be read, either.
        """
        with self._reader() as reader:
            situation, head = self._situation(reader, of_cpus=True), self._head(reader)
        return {**head, "notices": [notice.to_json() for notice in situation.notices], **who.to_values(situation, cpus)}

    def events(self, since_s: float, after: int, namespace: str = "") -> Values:
        """As the daemon's answer to `events`.

        Raises:
            CriproxyError: the state cannot be read, either.
        """
        with self._reader() as reader:
            notices, head = [self._notice(reader).to_json()], self._head(reader)
            found = reader.since(after, events.LEFT_OUT, namespace)
        return {**head, "notices": notices, **events.to_values(*found, since_s)}

    def devices(self, config: Path | None) -> Values:
        """Return an answer to `devices`, without what cannot be read."""
        classes, notices = _classes(config)
        stocks = find_cards_within(classes, self._host_root)
        try:
            with self._reader() as reader:
                situation, head = self._situation(reader), self._head(reader)
                holdings = Holdings()
                lives = [container.life for container in situation.node.containers.values()]
                holdings.recall(situation.node, reader.newest(Kind.DEVICES, lives))
        except CriproxyError as error:
            values, known = inventory.to_values(classes, stocks, None, Holdings()), False
            head = {"source": "machine", "time": timestamp(time.time()), "version": __version__, "pid": None}
            notices = [Notice("daemon-down", f"the cards of containers are unknown: {error}"), *notices]
        else:
            values, known = inventory.to_values(classes, stocks, situation.node, holdings), True
            notices = [*situation.notices, *notices]
        listed = [notice.to_json() for notice in notices]
        return {"started": None, **head, "notices": listed, "guarded": None, "holders_known": known, **values}

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        try:
            with open_reader(self._state_dir) as reader:
                yield reader
        except CriproxyError as error:
            raise CriproxyError(f"{self._reason}; {error}") from error

    def _situation(self, reader: Reader, *, of_cpus: bool = False) -> Situation:
        """Return what was stored; *of_cpus*: for an answer that says which CPUs are free, or that this is unknown."""
        node, notices = reader.node(discover(self._host_root)), [self._notice(reader)]
        left = as_left(self._state_dir, node, self._host_root)
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
            refusals=[Refusal(*row) for row in reader.refusals(reader.saved_s - REFUSAL_S)],
        )

    def _notice(self, reader: Reader) -> Notice:
        why = "; ".join(filter(None, (str(self._reason), still_running(self._state_dir, self._reason))))
        text = f"{why}. The rest was stored in {reader.path} at {timestamp(reader.saved_s)}"
        return Notice("daemon-down", text)

    def _head(self, reader: Reader) -> Values:
        return {
            "source": "store",
            "host": os.uname().nodename,
            "time": timestamp(reader.saved_s),
            "version": __version__,
            "pid": None,
            "started": None,
        }


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


def still_running(state_dir: Path, reason: NoDaemon | None = None) -> str:
    """Return a sentence about a daemon that runs with *state_dir* and does not answer; empty if there is none.

    Args:
        state_dir: its state directory.
        reason: why it does not answer, if somebody has asked it.
    """
    try:
        holder = holding(state_dir)
    except OSError as error:
        remedy = ": this needs root" if isinstance(error, PermissionError) else ""
        unknown = f"it is unknown whether a process uses the state directory {state_dir}"
        return f"{unknown} ({reason_of(error)}){remedy}"
    if not holder:
        return ""
    used = f"process {holder} uses the state directory {state_dir}"
    if is_release(state_dir):
        return f"{used}: it is a 'criproxy release'; ask again when it has ended"
    if is_ending(holder):
        return f"{used}: it {why_it_stays(holder)}"
    if reason is not None and reason.is_removed:
        return used
    return f"{used}: it hangs, or listens on another control socket"


def holding(state_dir: Path) -> int | None:
    """Return the process that uses the state directory. Trying the lock instead could keep a daemon from starting.

    Raises:
        OSError: that cannot be found out.
    """
    try:
        lock = os.stat(state_dir / LOCK_NAME)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        is_candidate = len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(lock.st_ino)
        if is_candidate and _has_open(int(fields[4]), lock):
            return int(fields[4])
    return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Whether a process has a file open: another file system may have a locked file with the same inode number.

    The device that /proc/locks names is not compared, since btrfs and overlayfs report another one to stat(2).
    """
    with suppress(FileNotFoundError):  # the process has ended
        for task in Path(f"/proc/{pid}/task").iterdir():  # of one that was killed, only the thread that hangs has it
            with suppress(FileNotFoundError, ProcessLookupError):
                if any(_is_open_as(descriptor, file) for descriptor in (task / "fd").iterdir()):
                    return True
    return False


def _is_open_as(descriptor: Path, file: os.stat_result) -> bool:
    with suppress(FileNotFoundError):  # it has been closed
        return os.path.samestat(descriptor.stat(), file)
    return False


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
