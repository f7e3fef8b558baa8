"""Reloads the policy file while the daemon runs, after SIGHUP or when the file has changed.

A file that cannot be used is logged and changes nothing. Reading and checking happen in a thread; calls continue
meanwhile. While another configuration is tried, or was kept, the policy file counts only if it has changed since then,
or somebody asks for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.model.node import Places
from criproxy.model.text.amounts import counted
from criproxy.model.text.notices import Values
from criproxy.node.configuration.in_place import PREVIOUS, InPlaceOfFile, in_effect
from criproxy.node.configuration.keepers import ConfigurationKeeper
from criproxy.node.configuration.load import FALLBACK, Configuration, failed_at, load_configuration, log_mistakes
from criproxy.node.configuration.policy_switch import PolicySwitch
from criproxy.node.context import Context
from criproxy.placement.decision import Decision
from criproxy.process.systemd import Notifier
from criproxy.store.configurations import GoodFile


@dataclass(slots=True, repr=False)
class Reload:
    """Brings changes of the policy file into force."""

    config: Path | None
    """As given to ``--config``."""
    had_file: bool
    """Whether there was a file, good or bad: then its absence is a mistake, and does not unpin containers."""
    context: Context
    policy_switch: PolicySwitch
    """Brings the policy and the settings into force."""
    in_place: InPlaceOfFile
    """What is in force in place of the policy file."""
    manager: Notifier
    """Notified when a reload begins and ends."""
    status: Callable[[], str]
    """Returns the status line for *manager* after a reload."""
    keeper: ConfigurationKeeper
    """Saves what has come into force, for the next start and for people."""
    current: GoodFile = field(default_factory=GoodFile)
    """What the file in force says."""
    one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a configuration is being brought into force."""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _asked: bool = False

    def ask(self) -> None:
        """Reload soon, and report the result even if nothing has changed."""
        self._asked = True
        self._wanted.set()

    def file_changed(self) -> None:
        """Reload soon if the content of the file has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Carry out the requested reloads, for ever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            asked, self._asked = self._asked, False
            if asked:
                self.manager.reloading()
            try:
                async with self.one:
                    ended = await self._once(asked=asked)
            except Exception as error:
                self._wanted.set()  # the supervision restarts this task after a pause
                self._failed(str(failed_at(error)), asked=asked)
                self.manager.ready(self.status())
                raise
            if asked or ended:
                self.manager.ready(self.status())

    async def command(self, _: Mapping[str, Any]) -> Values:
        """Answer ``criproxy reload``: bring the policy file into force, in place of what is tried or was kept.

        Raises:
            CriproxyError: the file cannot be used, so that everything is as before.
        """
        async with self.one:
            self.manager.reloading()
            try:
                await self._once(asked=True)
            finally:
                self.manager.ready(self.status())
        if problem := self.context.in_force.problem:
            raise CriproxyError(f"{problem}; {self.context.in_force.instead}")
        return self.answer()

    def answer(self) -> Values:
        """Return what is in force, for the answers of ``criproxy reload``."""
        in_force = self.context.in_force
        return {"policy": in_force.settings.policy_name, "hash": in_force.loaded.hash, **in_force.said()}

    async def bring(self, new: Configuration, *, how: str, back: Places | None = None) -> Decision:
        """Bring *new*, which is not the policy file, into force, and return what became of the containers.

        Raises:
            PolicyFailed: the policy failed at the running containers; everything is unchanged.
        """
        decision = await self.policy_switch.change(new.policy, new.settings, back)
        self._now_in_force(new, how)
        new.log_to(self.context.log)
        self.manager.status(self.status())
        return decision

    def hash_of_file(self) -> str:
        """Return the hash of the policy file as it is now; empty if it cannot be used. May block."""
        try:
            return self._load().file_hash
        except CriproxyError:
            return ""

    async def use_kept(self, new: Configuration) -> None:
        """Take *new*, which says the same as what is in force, for what is in force; the caller holds `one`."""
        if new.settings.devices != self.context.settings.devices:
            await self.policy_switch.use_devices(new.settings)
        self._now_in_force(new, "kept")

    async def use_file_if_same(self) -> bool:
        """Take the policy file for what is in force, if it says the same; return whether it does.

        The caller holds `one`.
        """
        try:
            new = await asyncio.to_thread(self._load)
        except CriproxyError as error:
            self._failed(str(error), asked=False)
            return False
        settings = self.context.settings
        same = (new.settings.configuration, new.settings.devices) == (settings.configuration, settings.devices)
        if same:
            self._now_in_force(new)
            self.context.log.info("the policy file matches the configuration in effect", **new.named)
        return same

    async def _once(self, *, asked: bool) -> bool:
        """Read the file and bring it into force; return whether the result is to be reported."""
        try:
            new = await asyncio.to_thread(self._load)
        except CriproxyError as error:
            return self._failed(str(error), asked=asked)
        tried = self.in_place.tried
        if tried and not asked and (tried.outlasts_files or tried.file_hash == new.file_hash):
            return self._is_well_again()  # the file is as it was when the try began, or does not count
        problem = self.context.in_force.problem
        same = new.settings.configuration == self.context.settings.configuration
        if same and self.context.settings.policy_name != FALLBACK:
            if new.settings.devices != self.context.settings.devices:
                await self.policy_switch.use_devices(new.settings)
                self._now_in_force(new)
                self.context.counters.reloads_ok += 1
                self.context.log.info("devices.plugin reloaded: no container moves", file=str(new.source))
                return True
            self._now_in_force(new)
            if asked or problem:
                self.context.log.info("the policy file matches the configuration in effect", **new.named)
            return problem is not None
        if not asked:
            self.manager.reloading()
        return await self._use(new)

    async def _use(self, new: Configuration) -> bool:
        back, before = self.in_place.places_for(new), self.context.state.node
        try:
            decision = await self.policy_switch.change(new.policy, new.settings, back)
        except CriproxyError as error:
            return self._failed(f"{new.source}: {error}", asked=True)
        self._now_in_force(new)
        self.context.counters.reloads_ok += 1
        new.log_to(self.context.log)
        apply = "all" if new.settings.apply_all else "new"
        moved = len(decision.moving(before))
        self.context.log.info("configuration reloaded", file=str(new.source), apply=apply, moved=moved)
        return True

    def _now_in_force(self, new: Configuration, how: str = "file") -> None:
        in_force, before = self.context.in_force, self.context.in_force.loaded
        self.current = new.said
        in_force.loaded = new.loaded(before)
        if in_force.loaded is not before:
            self.keeper.note(new.said, new.settings.policy_name, in_force.loaded, how)
        if how == "file":
            self.had_file |= new.source is not None
            self._is_well_again()
            self.keeper.keep(new.good)
            self.in_place.give_way()
        self.context.state.notify()  # the change of the policy has, but before it was known what is in force

    def save_kept(self, good: GoodFile) -> None:
        """Save *good*, which was tried and is kept."""
        self.keeper.keep(good)
        self.keeper.note(good, self.context.settings.policy_name, self.context.in_force.loaded, "kept")

    def _is_well_again(self) -> bool:
        """Forget that the policy file could not be used; return whether it could not."""
        in_force = self.context.in_force
        was_bad = in_force.problem is not None
        in_force.problem, in_force.instead = None, ""
        return was_bad

    def _failed(self, error: str, *, asked: bool) -> bool:
        """Log why the configuration stays as it was: once for each reason, or whenever a reload was requested."""
        problem, in_force = first_of(error), self.context.in_force
        if not asked and problem == in_force.problem:
            return False
        tried = self.in_place.tried
        in_force.problem, in_force.instead = problem, in_effect(tried) if tried else in_force.instead or PREVIOUS
        self.context.counters.reloads_failed += 1
        log_mistakes(self.context.log, error, in_force.instead)
        self.context.state.notify()
        return True

    def _load(self) -> Configuration:
        node, settings = self.context.state.node, self.context.settings
        former = [tried.before.configuration] if (tried := self.in_place.tried) else []
        good = (settings.configuration, *former)  # CPUs that the machine has lost since then do not make it a bad file
        return load_configuration(self.config, node.topology, settings, required=self.had_file, good=good)


def first_of(error: str) -> str:
    """Return the first mistake, and how many more there are."""
    mistakes = error.splitlines() or [""]
    more = len(mistakes) - 1
    return mistakes[0] + (f" (and {counted(more, 'more mistake')})" if more else "")
