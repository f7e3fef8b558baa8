"""Sandboxes that criproxy did not see being made: all that it knows of them is what creates say."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class NamedSandboxes:
    """How many creates are under way in each sandbox, and which sandboxes only creates have named.

    If no container comes of these creates, the last one that ends lets the sandbox be forgotten. Not the one that named
    it: others, which may not be decided yet, would lose their places and the annotations of their pod.
    """

    _under_way: Counter[str] = field(default_factory=Counter)
    _only_named: set[str] = field(default_factory=set)

    def begin(self, sandbox_id: str) -> None:
        """A create begins."""
        self._under_way[sandbox_id] += 1

    def name(self, sandbox_id: str) -> None:
        """It is the first that is heard of the sandbox."""
        self._only_named.add(sandbox_id)

    def made(self, sandbox_id: str) -> None:
        """A container was made, or may have been: the runtime has that sandbox."""
        self._only_named.discard(sandbox_id)

    def end(self, sandbox_id: str) -> bool:
        """A create has ended; whether it was the last one in a sandbox that only creates have named."""
        self._under_way[sandbox_id] -= 1
        if self._under_way[sandbox_id]:
            return False
        del self._under_way[sandbox_id]
        is_only_named = sandbox_id in self._only_named
        self._only_named.discard(sandbox_id)
        return is_only_named
