"""Sandboxes whose RunPodSandbox criproxy did not see: it knows them only from the creates of their containers."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class NamedSandboxes:
    """How many creates are in flight in each sandbox, and which sandboxes only creates have named.

    If none of these creates leads to a container, the sandbox is forgotten when the last of them ends, and not when the
    one that named it ends: others, which may not be decided yet, would lose their places and their pod's annotations.
    """

    _in_flight: Counter[str] = field(default_factory=Counter)
    _only_named: set[str] = field(default_factory=set)

    def begin(self, sandbox_id: str) -> None:
        """Record that a create begins."""
        self._in_flight[sandbox_id] += 1

    def name(self, sandbox_id: str) -> None:
        """Record that a create is the first call that names the sandbox."""
        self._only_named.add(sandbox_id)

    def created(self, sandbox_id: str) -> None:
        """Record that a container was created, or may have been: the runtime has that sandbox."""
        self._only_named.discard(sandbox_id)

    def end(self, sandbox_id: str) -> bool:
        """Record the end of a create; return whether it was the last one in a sandbox that only creates have named."""
        self._in_flight[sandbox_id] -= 1
        if self._in_flight[sandbox_id]:
            return False
        del self._in_flight[sandbox_id]
        is_only_named = sandbox_id in self._only_named
        self._only_named.discard(sandbox_id)
        return is_only_named
