"""Containers whose cgroup is gone: looked at when somebody asks about them, and not only with the next pass over all.

Without events of the runtime, `sync.drift` finds within some seconds that a container has ended by itself. Meanwhile it
would be told of as one that runs, and what it was given as something that nobody else can have.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.control.context import Context
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.cri.runtime import RuntimeCallError
from criproxy.discovery.container_cgroup import CpusetGroup

WAIT_S = 0.5
"""How long who asks waits for the runtime; what it says later is known later."""


@dataclass(slots=True)
class Gone:
    """Finds those that have ended."""

    context: Context
    reconciler: Reconciler
    wait_s: float = WAIT_S
    _asked: dict[str, asyncio.Event] = field(default_factory=dict)
    """Containers about which the runtime is asked, and what says that it has answered."""

    async def look(self, keys: Iterable[str]) -> None:
        """Read the cgroups of the containers *keys*, and ask the runtime about those that have none any more."""
        groups = self.context.cgroups.groups
        for key in keys:
            if key not in self._asked and (group := groups.get(key)) and _is_gone(group):
                self._asked[key] = asyncio.Event()
                self.context.tasks.spawn(f"read {key}", self._read(key))
        with suppress(TimeoutError):
            async with asyncio.timeout(self.wait_s):
                for answered in [*self._asked.values()]:
                    await answered.wait()

    async def _read(self, key: str) -> None:
        try:
            async with self.reconciler.turn(key):
                if key in self.context.state.node.grants:
                    await self.reconciler.read_cgroup(key)
        except RuntimeCallError as error:
            self.context.log.warning("cannot read the cgroup of a container", container=key, error=str(error))
        finally:
            self._asked.pop(key).set()


def _is_gone(group: CpusetGroup) -> bool:
    try:
        group.read()
    except OSError:
        return True
    return False
