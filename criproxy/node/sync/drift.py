"""Drift: reads the cgroups of running containers, and corrects cpusets that another program has written.

A pass over all containers is spread over some seconds, so that no step takes long. A container that differs is read
again under its lock, when no update of criproxy is in flight.
"""

import asyncio
from collections import deque
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from criproxy.cri.runtime import RuntimeCallError
from criproxy.host.cgroup import ContainerGroup, Contents, have_contents
from criproxy.model.attributes import ATTRIBUTES, CPUSET, FILES, agrees, in_place, readable
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import NO_CPUS, Applied, Grant
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.node.cgroups import Attributes
from criproxy.node.context import Context
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.sync.hotplug import Hotplug
from criproxy.placement.records.history import cpuset_text, instead_text
from criproxy.process.heartbeat import joint_s
from criproxy.process.tasks import batches, wait_at_most

_AT_ONCE = 25
"""Containers whose files are read without a pause: half a millisecond of CPU time."""
_PATIENCE = 3
"""How many times in a row a container is corrected at once, even if the change is harmless."""
_LONGEST_PAUSE_S = 300.0
_FILES = frozenset(each.name for each in FILES)
_RELEASED = Grant(NO_CPUS, NO_CPUS)
"""The grant with which a released container is compared: it requires no CFS quota and no memory nodes."""
_FIGHT, _FIGHT_S = 4, 60.0
"""So many changes of one container within this time are a fight, which is over after the same time without one."""
_CALM_S = 900.0
"""Time without a change after which the history of a container is dropped."""
_SUSPECTS = (
    "a kubelet with a static CPU manager that calls the runtime without criproxy, an NRI plugin or a tuning daemon",
    "systemd, when it applies the properties of a scope again (daemon-reload, set-property)",
)
"""The programs that probably set a cpuset: of some CPUs, and of all."""
WAIT_S = 0.5
"""How long a caller waits for the runtime; a later answer still counts."""


@dataclass(slots=True)
class _History:
    """How often the cpuset of one container was changed by another program."""

    times: int = 0
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_FIGHT))


@dataclass(frozen=True, slots=True)
class _Fine:
    """A container that had what was applied."""

    grant: Grant
    applied: Applied
    contents: Contents


@dataclass(slots=True)
class Compared:
    """Compares containers with what was applied: as long as their files are the same, nothing is parsed."""

    _fine: dict[str, _Fine] = field(default_factory=dict)

    def as_applied(self, key: str, group: ContainerGroup, grant: Grant, applied: Applied) -> bool:
        """Return `as_applied` of these values."""
        fine = self._fine.get(key)
        if fine and fine.grant is grant and fine.applied is applied and have_contents(fine.contents):
            return True
        self._fine.pop(key, None)
        try:
            contents = group.contents(readable(grant))
        except OSError:  # such as a quota where there is no controller
            return as_applied(group, grant, applied)
        if _agrees(group, grant, applied, written=False):  # else what is in effect does not show each change
            self._fine[key] = _Fine(grant, applied, contents)
            return True
        return _agrees(group, grant, applied, written=True)

    def keep(self, known: Container[str]) -> None:
        """Forget all containers but these."""
        for key in [key for key in self._fine if key not in known]:
            del self._fine[key]


@dataclass(slots=True)
class Drift:
    """Reads the cgroups of all running containers periodically."""

    context: Context
    reconciler: Reconciler
    hotplug: Hotplug
    _asked: set[str] = field(default_factory=set)
    """Containers that are being read again."""
    _histories: dict[str, _History] = field(default_factory=dict)
    _compared: Compared = field(default_factory=Compared)

    async def watch(self) -> None:
        """Check all containers, for ever."""
        clock = asyncio.get_running_loop()
        while True:
            await self.hotplug.check()
            self.reconciler.enqueue(list(self.context.cgroups.lost), read=True)
            parts = list(batches(list(self.context.cgroups.groups), _AT_ONCE)) or [[]]
            begun_s, period_s = clock.time(), self.context.settings.drift_period_s
            for number, part in enumerate(parts, 1):
                self.check(part)
                await asyncio.sleep(joint_s(begun_s + period_s * number / len(parts) - clock.time()))
            self._forget()

    def check(self, keys: Sequence[str]) -> None:
        """Read the cgroups of the containers *keys*, and check those that differ again under their locks."""
        context, node = self.context, self.context.state.node
        for key in keys:
            group, applied = context.cgroups.groups.get(key), node.applied.get(key)
            grant = _RELEASED if node.released else node.grants.get(key)
            if group is None or grant is None or applied is None or key in self._asked or context.locks.busy(key):
                continue
            if not self._compared.as_applied(key, group, grant, applied):
                self._asked.add(key)
                context.tasks.spawn(f"read {key}", self._check_again(key))

    async def _check_again(self, key: str) -> None:
        try:
            await self.hotplug.check()  # with cgroup v1, a CPU that goes offline leaves all cpusets
            async with self.reconciler.turn(key):
                pause_s = await self._compare(key)
            await self._pause(key, pause_s)
        except RuntimeCallError as error:
            self.context.log.warning("cannot read the cgroup of a container", container=key, error=str(error))
        except Exception:
            self.reconciler.enqueue([key])
            raise  # `Tasks` reports it
        finally:
            self._asked.discard(key)
        self.reconciler.enqueue([key])  # if it is not in place yet: an update reads it, too, until it can

    async def _pause(self, key: str, pause_s: float) -> None:
        """Wait *pause_s* before *key* is corrected; return earlier if it does harm: the next pass corrects it then."""
        clock = asyncio.get_running_loop()
        end_s = clock.time() + pause_s
        while (left_s := end_s - clock.time()) > 0 and not self._harms_now(key):  # noqa: ASYNC110 (others write files)
            await asyncio.sleep(min(left_s, self.context.settings.drift_period_s))

    def _harms_now(self, key: str) -> bool:
        """Whether the present cpuset of *key* affects exclusive CPUs."""
        group, node = self.context.cgroups.groups.get(key), self.context.state.node
        if group is None or key not in node.grants or key not in node.applied:
            return False
        with suppress(OSError):
            return does_harm(node, key, group.read(CPUSET))
        return False

    async def _compare(self, key: str) -> float:
        """Read *key* again and correct it; return the seconds to wait first, if it is to be corrected later."""
        context, reconciler, before = self.context, self.reconciler, self.context.state.node
        if before.released:  # containers have no grants
            await self._note_released(key, before)
            return 0.0
        if key not in before.grants or reconciler.is_reading(key):
            return 0.0
        seen = await reconciler.read_cgroup(key)
        if seen.ended or not seen.applied or not is_foreign(before, key, seen.applied):
            return 0.0
        context.counters.drift_found += 1
        pause_s = self._note(key, before, seen.applied)
        if not pause_s:
            await reconciler.bring_into_place(key, "another program had changed it")
            grant, now = context.state.node.grants.get(key), context.state.node.applied.get(key)
            context.counters.drift_repaired += grant is None or in_place(grant, now)
        return pause_s

    async def _note_released(self, key: str, before: Node) -> None:
        """Record the cpuset that another program has given to a released container."""
        had, seen = before.applied.get(key), await self.reconciler.read_cgroup(key)
        if key in before.grants or had is None or (has := seen.applied) is None or seen.ended:
            return
        if had.cpus & before.topology.cpus <= has.cpus:  # it has all of its online CPUs, or more
            return
        cpus, mems, had_cpus = (format_cpuset(sets) for sets in (has.cpus, has.mems, had.cpus))
        text = f"another program set {cpuset_text(has)}; the container is released, and stays there"
        self.context.state.note(key, Kind.DRIFT, text, cpus=cpus, mems=mems, had_cpus=had_cpus)
        event = "another program changed the cpuset of a released container"
        self.context.log.warning(event, container=before.containers[key].title, cpus=cpus, instead_of=had_cpus)

    def _note(self, key: str, before: Node, has: Applied) -> float:
        """Report a change, and return the seconds to wait if it is harmless and corrections did not last."""
        now_s = asyncio.get_running_loop().time()
        history = self._histories.setdefault(key, _History())
        history.times += 1
        history.recent_s.append(now_s)
        with self.context.failures.harmless("a foreign change"):
            self._report(key, before, has, history)
        pause_s = 0.0
        if history.times >= _PATIENCE and not does_harm(before, key, has):
            doublings = min(history.times - _PATIENCE, 20)
            pause_s = min(self.context.settings.drift_period_s * float(1 << doublings), _LONGEST_PAUSE_S)
        fights, recent_s = self.context.cgroups.fights, history.recent_s
        if fights.get(key, 0.0) > now_s or (len(recent_s) == _FIGHT and now_s - recent_s[0] <= _FIGHT_S):
            fights[key] = now_s + pause_s + _FIGHT_S
        return pause_s

    def _report(self, key: str, before: Node, has: Applied, history: _History) -> None:
        should, title, times = before.applied[key], before.containers[key].title, history.times
        cpus, mems, had_cpus = format_cpuset(has.cpus), format_cpuset(has.mems), format_cpuset(should.cpus)
        changed = next(each.noun for each in ATTRIBUTES if not each.agrees(before.grants[key], should, has))
        event, log = f"another program changed the {changed} of a container", self.context.log
        log.warning(event, container=title, cpus=cpus, instead_of=had_cpus, mems=mems, times=times)
        text = f"another program set {instead_text(has, should)}"
        self.context.state.note(key, Kind.DRIFT, text, cpus=cpus, mems=mems, had_cpus=had_cpus, times=times)
        if times == _PATIENCE:
            event = "another program keeps changing the cpuset of a container: stop it, or remove criproxy"
            suspect = _SUSPECTS[has.cpus >= before.topology.cpus]
            log.error(event, suspect=suspect, container=title, cpus=cpus)

    def _forget(self) -> None:
        """Drop the histories of containers that are gone, or that were not changed recently."""
        node = self.context.state.node
        self.context.cgroups.keep(node.grants.keys() | node.applied.keys())
        now_s = asyncio.get_running_loop().time()
        for key, history in list(self._histories.items()):
            if now_s - history.recent_s[-1] > _CALM_S or key not in self.context.cgroups.groups:
                del self._histories[key]
        self._compared.keep(self.context.cgroups.groups)


def as_applied(group: ContainerGroup, grant: Grant, applied: Applied) -> bool:
    """Whether a container has what criproxy applied; also False if its cgroup is gone.

    With cgroup v2 it may effectively have less, because parent cgroups allow less; its configured cpuset counts.
    """
    return any(_agrees(group, grant, applied, written=written) for written in (False, True))


def _agrees(group: ContainerGroup, grant: Grant, applied: Applied, *, written: bool) -> bool:
    attributes = readable(grant)
    try:
        has = group.read(attributes, written=written)
    except OSError:
        return False
    return agrees(grant, applied, has) and not _is_news(attributes, applied, has)


def _is_news(attributes: Attributes, applied: Applied, has: Applied) -> bool:
    """Whether a container *has* a file of a class of which nothing is known, as after a restart."""
    names = [each.name for each in attributes if each.name in _FILES]
    return any(getattr(applied, name) is None and getattr(has, name) is not None for name in names)


def is_foreign(before: Node, key: str, has: Applied) -> bool:
    """Whether another program wrote what *key* has: it is neither what criproxy wrote nor the online part of that."""
    grant, applied = before.grants[key], before.applied.get(key)
    if applied is None or in_place(grant, has):
        return False
    left = replace(applied, cpus=applied.cpus & before.topology.cpus, mems=applied.mems & before.topology.mems)
    return not any(agrees(grant, ours, has) for ours in (applied, left))


def does_harm(node: Node, key: str, has: Applied) -> bool:
    """Whether exclusive CPUs are affected, which is always corrected at once. A quota harms no other container."""
    own, should = node.grants[key].exclusive, node.applied[key]
    if (has.cpus, has.mems) == (should.cpus, should.mems):
        return False
    return bool(own) or not has.cpus.isdisjoint(node.exclusive_cpus - own)


@dataclass(slots=True)
class Gone:
    """Finds containers that have ended."""

    context: Context
    reconciler: Reconciler
    wait_s: float = WAIT_S

    async def check(self, keys: Iterable[str]) -> None:
        """Wait for the ends of those of the containers *keys* whose cgroups have gone; the runtime is asked."""
        groups, state = self.context.cgroups.groups, self.context.state
        gone = {key for key in keys if (group := groups.get(key)) and _is_gone(group)}
        self.reconciler.enqueue(list(gone), read=True)

        async def ended() -> None:
            while not gone.isdisjoint(state.node.grants):
                await state.changed()

        await wait_at_most(self.wait_s, ended())


def _is_gone(group: ContainerGroup) -> bool:
    try:
        group.read()
    except OSError:
        return True
    return False
