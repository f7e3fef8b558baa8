"""The interface of the parts that apply what containers have: one for each kind of control.

Each part runs in a thread of its own. A call that hangs is named, and is the only one that waits: meanwhile, another
thread calls the part for other containers, so a part holds no lock while it reads or writes files.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from criproxy.model.controls import ContainerControls, Desired


class Part(ABC):
    """Applies one kind of control to containers. All methods may block, and return troubles as sentences."""

    name: str
    """For people."""
    field: str
    """What of `ContainerControls` it applies; it is called for containers that have that, or had it."""
    drift = 0
    """How often it has found, and repaired, what others had changed."""

    def configure(self, desired: Desired) -> list[str]:
        """Prepare classes and partitions before containers that use them are applied; called on a timer, too.

        Then it repairs what others have changed, and removes what no class has any more.
        """
        return []

    @abstractmethod
    def apply(self, id: str, controls: ContainerControls, before: ContainerControls | None) -> list[str]:
        """Apply *controls* to a container.

        Args:
            id: of the container.
            controls: all of its controls; the part picks its own. Applying the same again must do no harm.
            before: what was applied to it last, also by an earlier run of this program; None: nothing.
        """

    @abstractmethod
    def forget(self, id: str, before: ContainerControls) -> list[str]:
        """Put back what *before* has set, if the container still exists: it may be gone, or have lost its class."""

    @abstractmethod
    def look(self, id: str, controls: ContainerControls) -> list[str]:
        """Apply to new threads of a container, and repair what others have changed; called on a timer.

        Thousands of containers are looked at: a few reads for each, and nothing is written that is as it should be.
        """

    def put_back(self) -> list[str]:
        """Remove what belongs to no container, such as groups of resctrl; all containers are forgotten already."""
        return []

    @abstractmethod
    def machine(self) -> Mapping[str, Any]:
        """Return what this machine can, as JSON."""
