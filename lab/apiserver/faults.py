"""What the small API server does wrong, as a test wants it."""

import asyncio
from dataclasses import dataclass, field

Which = tuple[str, str]
"""Verb (as in RBAC) and plural; ``*`` for any."""


@dataclass(frozen=True, slots=True)
class Refuses:
    """An answer instead of the right one."""

    status: int
    message: str = "refused by a test"
    reason: str = ""
    retry_after: str = ""
    times: int | None = None
    """How often; None: until it is taken away."""


@dataclass(slots=True)
class Faults:
    """The faults in effect; each is off at first."""

    refuses: dict[Which, Refuses] = field(default_factory=dict)
    """Such as ``{("patch", "nodes"): Refuses(403)}``."""
    tokens: set[str] | None = None
    """The tokens that are valid; None: all."""
    slow_s: float = 0.0
    """Each answer begins this much later."""
    bodies: dict[Which, bytes] = field(default_factory=dict)
    """Bodies of answers (200) instead of the right ones; for a watch, its lines."""
    expires_by_event: bool = True
    """Whether a watch from too old a version gets an event with 410 in an answer with 200, or HTTP's 410."""
    ignores_timeout: bool = False
    """Whether watches stay open after their timeoutSeconds."""
    _speaking: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._speaking.set()

    def silence(self) -> None:
        """Read requests, but answer nothing, and send nothing in open watches."""
        self._speaking.clear()

    def speak(self) -> None:
        """End the silence: what was held back is sent."""
        self._speaking.set()

    async def delay(self) -> None:
        """Wait as long as an answer is held back."""
        await self._speaking.wait()
        if self.slow_s:
            await asyncio.sleep(self.slow_s)

    async def spoken(self) -> None:
        """Wait as long as an open watch is held back."""
        await self._speaking.wait()

    def refusal(self, verb: str, plural: str) -> Refuses | None:
        """Return the refusal of this request, counted."""
        for which in ((verb, plural), ("*", plural), (verb, "*"), ("*", "*")):
            if (found := self.refuses.get(which)) is None:
                continue
            if found.times is not None:
                left = Refuses(found.status, found.message, found.reason, found.retry_after, found.times - 1)
                if left.times:
                    self.refuses[which] = left
                else:
                    del self.refuses[which]
            return found
        return None

    def body(self, verb: str, plural: str) -> bytes | None:
        """Return the wrong body of an answer."""
        return self.bodies.get((verb, plural))
