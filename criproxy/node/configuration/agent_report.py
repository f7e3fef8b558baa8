"""What the node's agent has said last: that it is there, and what it cannot do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import Any

from criproxy.errors import UsageError
from criproxy.model.text.bounded import bounded
from criproxy.model.text.notices import Notice, Values, timestamp

MOST = 20
MOST_CHARACTERS = 500
"""The number of sentences that are kept, and the longest one."""
SILENT_S = 60.0
"""After so long without a poll, the agent is not there; it polls every 30 s at the latest."""


@dataclass(slots=True)
class AgentReport:
    """The last report of `criproxy agent`, which polls the daemon."""

    clock: Callable[[], float] = monotonic
    version: str = ""
    problems: Sequence[str] = ()
    """What it cannot do: sentences about the API server."""
    wrong: Sequence[str] = ()
    """What it cannot do and is a problem of the node, such as a NodePolicy that cannot be applied."""
    since_s: float = 0.0
    """When it polled first, in seconds since the epoch."""
    _at_s: float = float("-inf")

    @property
    def runs(self) -> bool:
        """Whether it has polled recently."""
        return self.clock() - self._at_s <= SILENT_S

    def read(self, report: Mapping[str, Any]) -> None:
        """Take the *report* of a poll: ``version``, ``problems`` and ``wrong``.

        Raises:
            UsageError: one of these has another type.
        """
        version, lists = report.get("version", ""), [report.get(key, []) for key in ("problems", "wrong")]
        are_texts = all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in lists)
        if not isinstance(version, str) or not are_texts:
            raise UsageError("report: version must be a text, and problems and wrong lists of texts")
        if not self.runs:
            self.since_s = time()
        self._at_s, self.version = self.clock(), bounded(version, MOST_CHARACTERS)
        self.problems, self.wrong = (bounded(texts[:MOST], MOST_CHARACTERS) for texts in lists)

    def to_json(self) -> Values | None:
        """As in the answer of `status`; None if no agent runs."""
        if not self.runs:
            return None
        problems = [*self.wrong, *self.problems]
        return {"version": self.version, "since": timestamp(self.since_s), "problems": problems}

    def notices(self) -> Iterator[Notice]:
        """Yield what it cannot do, while it runs."""
        if self.runs:
            yield from (Notice("node-policy", text) for text in self.wrong)
            yield from (Notice("agent", f"the agent: {text}", wrong=False) for text in self.problems)
