"""Reading the policy file again while the daemon runs: because somebody asked (SIGHUP), or because it has changed.

A file that cannot be used leaves everything as it is, loudly, until one that can be is there. Reading and checking
happen in a thread; calls go on meanwhile.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from criproxy.control.configuration.last_good import GoodFile
from criproxy.control.configuration.load import Configuration, load_configuration
from criproxy.control.configuration.policy_switch import PolicySwitch
from criproxy.control.context import Context
from criproxy.control.node.asking import PolicyFailed
from criproxy.errors import CriproxyError

_TOLD = 10
"""Mistakes that are logged, a line each."""


class Manager(Protocol):
    """What a service manager wants to know of a reload."""

    def reloading(self) -> None:
        """It begins."""
        ...

    def ready(self, status: str) -> None:
        """It is over, well or not."""
        ...


class Reload:
    """Keeps what the policy file says in force.

    Args:
        config: as given to ``--config``.
        in_force: what the daemon has started with.
        context: has the configuration in force.
        policy_switch: gets what is new.
        manager: told when a reload begins and ends.
        status: one line for *manager*: how we are after it.
        keep: given what has come into force, for the next start.
    """

    def __init__(
        self,
        config: Path | None,
        in_force: Configuration,
        context: Context,
        policy_switch: PolicySwitch,
        manager: Manager,
        status: Callable[[], str],
        keep: Callable[[GoodFile], None] = lambda _: None,
    ) -> None:
        self.in_force = in_force
        self._keep = keep
        self._config = config
        self._context = context
        self._policy_switch = policy_switch
        self._manager = manager
        self._status = status
        self._log = context.log
        self._wanted = asyncio.Event()
        self._asked = False

    def ask(self) -> None:
        """Reload soon, and tell what came of it even if nothing has changed."""
        self._asked = True
        self._wanted.set()

    def look(self) -> None:
        """The file may have changed: reload if it says something else now."""
        self._wanted.set()

    async def run(self) -> None:
        """Do what is asked for, one after the other, for ever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            asked, self._asked = self._asked, False
            if asked:
                self._manager.reloading()
            ended = await self._once(asked=asked)
            if asked or ended:
                self._manager.ready(self._status())

    async def _once(self, *, asked: bool) -> bool:
        """Read the file and use what it says; whether anything is to be told of it."""
        try:
            new = await asyncio.to_thread(self._load)
        except CriproxyError as error:
            return self._failed(str(error), asked=asked)
        problem = self._context.in_force.problem
        same = new.settings.configuration == self._context.settings.configuration
        if same and not self.in_force.is_fallback:
            self._now_in_force(new)
            if asked or problem:
                self._log.info("the policy file says what is in force", file=str(new.source))
            return problem is not None
        if not asked:
            self._manager.reloading()
        return await self._use(new)

    async def _use(self, new: Configuration) -> bool:
        try:
            decision = await self._policy_switch.change(new.policy, new.settings)
        except (CriproxyError, PolicyFailed) as error:
            return self._failed(f"{new.source}: {error}", asked=True)
        self._now_in_force(new)
        self._context.counters.reloads_ok += 1
        new.tell(self._log)
        apply = "all" if new.settings.apply_all else "new"
        self._log.info("configuration reloaded", file=str(new.source), apply=apply, moved=len(decision.updates))
        return True

    def _now_in_force(self, new: Configuration) -> None:
        self.in_force = new
        self._context.in_force.problem = None
        self._context.in_force.instead = ""
        if not new.misfits:  # what is kept was good on all of the machine
            self._keep(new.good)

    def _failed(self, error: str, *, asked: bool) -> bool:
        """Say why the configuration stays as it was, once for each reason or whenever somebody asked."""
        mistakes, problem = error.splitlines(), first_of(error)
        if not asked and problem == self._context.in_force.problem:
            return False
        self._context.in_force.problem = problem
        self._context.counters.reloads_failed += 1
        for mistake in mistakes[:_TOLD]:
            self._log.error("the policy file cannot be used: the configuration before stays in force", mistake=mistake)
        self._context.in_force.instead = self.in_force.instead or "the one before is in force"
        return True

    def _load(self) -> Configuration:
        # Once there was a file, its absence is a mistake of somebody: nobody is unpinned because of it.
        required = self.in_force.source is not None or bool(self.in_force.problem)
        node, settings = self._context.state.node, self._context.settings
        good = (settings.configuration,)  # what the machine has lost since then does not make it a bad one
        return load_configuration(self._config, node.topology, settings, required=required, good=good)


def first_of(error: str) -> str:
    """The first of many mistakes, and how many more there are."""
    mistakes = error.splitlines() or [""]
    more = len(mistakes) - 1
    return mistakes[0] + (f" (and {more} more mistake{'s' if more > 1 else ''})" if more else "")
