"""The last configuration of a node, with the mark of a release that was undone without a daemon."""

from dataclasses import dataclass, replace
from typing import Self

_UNDONE = "undone"
"""Before the digest, in the text."""
_UNKNOWN = "unknown"
"""In place of a digest."""


@dataclass(frozen=True, slots=True)
class LastConfiguration:
    """The content of `Node.configuration`, which the store keeps as one text."""

    digest: str = ""
    """As `Settings.configuration`; empty if unknown: the state is new, or was lost."""
    is_undone: bool = False
    """Whether its release was undone while no daemon ran: the next daemon places all containers."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the *text* of `Node.configuration`."""
        return cls(text.removeprefix(_UNDONE), text.startswith(_UNDONE))

    def format(self) -> str:
        """Return the text for `Node.configuration`."""
        return f"{_UNDONE if self.is_undone else ''}{self.digest}"

    @property
    def undone(self) -> Self:
        """The value after its release was undone."""
        return replace(self, is_undone=True)

    @property
    def digest_of_release(self) -> str:
        """The digest to store in a release without a policy file.

        If no digest is known, it is a text that equals no digest.
        """
        return self.digest or _UNKNOWN

    def keeps_release(self, digest: str) -> bool:
        """Whether a release continues under the configuration with *digest*, which is, or may be, the former one."""
        return not self.is_undone and self.digest in (digest, _UNKNOWN)
