"""What the embedded runtime asks its plugins, and tells them; it has none itself."""

from typing import TYPE_CHECKING

from criproxy.cri import api_pb2 as cri
from lab.emulator.records.records import Container, Sandbox

if TYPE_CHECKING:
    from lab.emulator.core import Core


class Plugins:
    """No plugins: nobody changes anything. Who has some overrides what they are to be asked, or told."""

    async def start(self) -> None:
        """The runtime begins."""

    async def stop(self) -> None:
        """The runtime ends."""

    async def tell(self, event: str, sandbox: Sandbox, container: Container | None = None) -> None:
        """Something happens.

        Args:
            event: the name of NRI's method.
            sandbox: with which it happens.
            container: of the sandbox, where it happens with that.

        Raises:
            Refusal: it must not happen; what is over happens anyway.
        """

    async def create(self, core: "Core", container: Container) -> None:
        """A container is about to be created: it may get something else than it was asked for.

        Raises:
            Refusal: it must not be created.
        """

    async def update(
        self, core: "Core", container: Container, asked: cri.LinuxContainerResources
    ) -> cri.LinuxContainerResources:
        """A container is about to be updated; return what it gets.

        Raises:
            Refusal: it must not be updated.
        """
        return asked

    def ended(self, container: Container) -> None:
        """The process of a container has ended, by whatever."""
