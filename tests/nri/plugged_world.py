"""A world in which criproxy is a plugin of the embedded runtime, as the daemon builds it."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from criproxy.cri.runtime import RuntimeClient
from criproxy.daemon.start import base_settings
from criproxy.node.settings import Settings
from criproxy.nri.front import NriFront
from criproxy.nri.plugin import Plugin
from criproxy.nri.runtime import NriRuntime
from tests.node.world import World
from tests.nri.embedded import NriSide

_NRI = base_settings(Path("/"), is_plugin=True)


class PluggedWorld(World):
    """Of the methods of a world, those about what takes the calls."""

    nri_version = ""
    """As `NriSide`."""

    def limited(self, settings: Settings) -> Settings:
        """What a plugin must not wait for it does not; of all else, a slow machine may take its time."""
        return replace(
            settings,
            moves_created=_NRI.moves_created,
            durable_s=_NRI.durable_s,
            barrier_timeout_s=_NRI.barrier_timeout_s,
            create_pause_s=_NRI.create_pause_s,
        )

    def plugins(self) -> NriSide:
        """Criproxy, as soon as it has connected."""
        self.nri = NriSide(self._directory / "nri.sock", self.nri_version)
        return self.nri

    @property
    def kubelets_endpoint(self) -> str:
        """That of the runtime."""
        return f"unix://{self.runtime.path}"

    def own_client(self) -> RuntimeClient:
        """The same, with updates in answers."""
        front = NriFront(self._directory)
        self.front = front
        return NriRuntime(f"unix://{self.runtime.path}", front)

    async def start_front(self, stack: AsyncExitStack) -> None:
        """Connect, as soon as it is known what runs, and again and again."""
        controller, front = self.controller, self.front
        assert isinstance(front, NriFront)
        front.on_error = controller.fallback.on_error
        front.on_runtime_lost = controller.runtime_lost
        front.use(controller.table())
        controller.policy_switch.changed = lambda: front.use(controller.table())
        plugin = Plugin(str(self.nri.path), front)
        parts = controller.known, controller.reconciler.blockers, controller.context.tasks.failed
        self._connected = asyncio.create_task(plugin.run(*parts))
        stack.push_async_callback(self._disconnect)
        await self.asked()

    async def _disconnect(self) -> None:
        self._connected.cancel()
        await asyncio.gather(self._connected, return_exceptions=True)

    async def asked(self) -> None:
        """Wait until the runtime asks criproxy."""
        await self.poll(lambda: self.nri.has_plugin)

    def cut_front(self) -> None:
        """Nothing is answered, and nobody hears of it."""
        front = self.front
        assert isinstance(front, NriFront)
        front.on_runtime_lost = lambda: None
        front._open.clear()
        self._connected.cancel()

    def close_front(self) -> None:
        """There is nothing left."""
