"""The configuration that a node was left with, and what a release without a daemon has added to that."""

from dataclasses import dataclass, replace
from typing import Self

_UNDONE = "undone"
"""Before the digest, in the text."""
_UNKNOWN = "unknown"
"""In place of a digest."""


@dataclass(frozen=True, slots=True)
class LastConfiguration:
    """What `Node.configuration` says, which the store keeps as one text."""

    digest: str = ""
    """As `Settings.configuration`; empty where none is known: the state is new, or was lost."""
    is_undone: bool = False
    """Its release was undone while no daemon ran: the next one places all containers."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """What *text*, of `Node.configuration`, says."""
        return cls(text.removeprefix(_UNDONE), text.startswith(_UNDONE))

    def format(self) -> str:
        """The text for `Node.configuration`."""
        return f"{_UNDONE if self.is_undone else ''}{self.digest}"

    @property
    def undone(self) -> Self:
        """The same after its release was undone."""
        return replace(self, is_undone=True)

    @property
    def digest_of_release(self) -> str:
        """What takes the place of `digest` in a release for which no policy file is read.

        Where no digest is known, that text is none: no configuration ends such a release.
        """
        return self.digest or _UNKNOWN

    def keeps_release(self, digest: str) -> bool:
        """Whether a release goes on under the configuration with *digest*: it is that of before, or may be."""
        return not self.is_undone and self.digest in (digest, _UNKNOWN)
