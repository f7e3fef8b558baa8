"""Containers whose cgroup is gone: checked on request, and not only when `sync.drift` reads all cgroups.

Without events of the runtime, `sync.drift` detects within some seconds that a container has ended without a call. Until
then, replies would report that it runs, and that its cards are in use.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.cri.runtime import RuntimeCallError
from criproxy.host.container_cgroup import CpusetGroup
from criproxy.node.context import Context
from criproxy.node.reconcile.reconciler import Reconciler

WAIT_S = 0.5
"""How long a caller waits for the runtime; a later answer still counts."""


@dataclass(slots=True)
class Gone:
    """Finds containers that have ended."""

    context: Context
    reconciler: Reconciler
    wait_s: float = WAIT_S
    _asked: dict[str, asyncio.Event] = field(default_factory=dict)
    """By container: set when the runtime has answered a query about it."""

    async def check(self, keys: Iterable[str]) -> None:
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
