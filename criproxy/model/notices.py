"""What the controller reports beside the node itself; `views` show it with everything else."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the whole node that people should know."""

    kind: str
    """A stable word for programs, such as ``bypass``."""
    text: str
    wrong: bool = True
    """Whether something is wrong; False for what an operator has chosen."""

    def to_json(self) -> Values:
        """As in the answer of `status`."""
        return {"kind": self.kind, "wrong": self.wrong, "text": self.text}


@dataclass(frozen=True, slots=True)
class Trouble:
    """An update that does not go through."""

    error: str
    failures: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A container that cannot be created."""

    container: str
    """NAMESPACE/POD/CONTAINER."""
    text: str
    """What the kubelet was told the last time."""
    times: int
    at_s: float
    """The last time, in seconds since the epoch."""
    sandbox: str = ""
    """In which it cannot be created; empty for one that was."""

    def to_json(self) -> Values:
        """As in the answer of `status`."""
        at = timestamp(self.at_s)
        return {"container": self.container, "time": at, "times": self.times, "text": self.text}


def timestamp(at_s: float) -> str:
    """UTC with milliseconds, as in the log."""
    at = datetime.fromtimestamp(int(at_s), UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{int(at_s % 1 * 1000):03d}Z"
