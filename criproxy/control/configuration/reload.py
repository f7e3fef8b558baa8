"""Reloads the policy file while the daemon runs, after SIGHUP or when the file has changed.

A file that cannot be used is logged and changes nothing. Reading and checking happen in a thread; calls continue
meanwhile.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.control.configuration.load import FALLBACK, Configuration, load_configuration, log_mistakes
from criproxy.control.configuration.policy_switch import PolicySwitch
from criproxy.control.context import Context
from criproxy.errors import CriproxyError
from criproxy.model.amounts import counted
from criproxy.observe.systemd import Notifier
from criproxy.store.last_good import GoodFile


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
    manager: Notifier
    """Notified when a reload begins and ends."""
    status: Callable[[], str]
    """Returns the status line for *manager* after a reload."""
    keep: Callable[[GoodFile], None] = lambda _: None
    """Called with the file that has come into force, to save it for the next start."""
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
                ended = await self._once(asked=asked)
            except Exception as error:
                self._wanted.set()  # the supervision restarts this task after a pause
                self._failed(f"criproxy failed at the policy file: {error!r}", asked=asked)
                self.manager.ready(self.status())
                raise
            if asked or ended:
                self.manager.ready(self.status())

    async def _once(self, *, asked: bool) -> bool:
        """Read the file and bring it into force; return whether the result is to be reported."""
        try:
            new = await asyncio.to_thread(self._load)
        except CriproxyError as error:
            return self._failed(str(error), asked=asked)
        problem = self.context.in_force.problem
        same = new.settings.configuration == self.context.settings.configuration
        if same and self.context.settings.policy_name != FALLBACK:
            if new.settings.devices != self.context.settings.devices:
                return await self._use_devices(new)
            self._now_in_force(new)
            if asked or problem:
                file = {"file": str(new.source), "hash": new.file_hash}
                self.context.log.info("the policy file matches the configuration in effect", **file)
            return problem is not None
        if not asked:
            self.manager.reloading()
        return await self._use(new)

    async def _use(self, new: Configuration) -> bool:
        try:
            decision = await self.policy_switch.change(new.policy, new.settings)
        except CriproxyError as error:
            return self._failed(f"{new.source}: {error}", asked=True)
        self._now_in_force(new)
        self.context.counters.reloads_ok += 1
        new.log_to(self.context.log)
        apply = "all" if new.settings.apply_all else "new"
        self.context.log.info("configuration reloaded", file=str(new.source), apply=apply, moved=len(decision.updates))
        return True

    async def _use_devices(self, new: Configuration) -> bool:
        """Use settings that only concern devices: which resources belong to criproxy's own device plugin."""
        await self.policy_switch.use_devices(new.settings)
        self._now_in_force(new)
        self.context.counters.reloads_ok += 1
        self.context.log.info("devices.plugin reloaded: no container moves", file=str(new.source))
        return True

    def _now_in_force(self, new: Configuration) -> None:
        self.had_file |= new.source is not None
        self.context.in_force.problem = None
        self.context.in_force.instead = ""
        self.context.in_force.loaded = new.loaded(self.context.in_force.loaded)
        self.keep(new.good)

    def _failed(self, error: str, *, asked: bool) -> bool:
        """Log why the configuration stays as it was: once for each reason, or whenever a reload was requested."""
        problem, in_force = first_of(error), self.context.in_force
        if not asked and problem == in_force.problem:
            return False
        in_force.problem, in_force.instead = problem, in_force.instead or "the previous one stays in effect"
        self.context.counters.reloads_failed += 1
        log_mistakes(self.context.log, error, in_force.instead)
        return True

    def _load(self) -> Configuration:
        node, settings = self.context.state.node, self.context.settings
        good = (settings.configuration,)  # CPUs that the machine has lost since then do not make it a bad file
        return load_configuration(self.config, node.topology, settings, required=self.had_file, good=good)


def first_of(error: str) -> str:
    """Return the first mistake, and how many more there are."""
    mistakes = error.splitlines() or [""]
    more = len(mistakes) - 1
    return mistakes[0] + (f" (and {counted(more, 'more mistake')})" if more else "")
