"""Reports of the controller in addition to the node, for `api.views`."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_NUMBERS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,5}")


def difference(own: str, other: str) -> str:
    """Return how *other* compares with *own*: ``older``, ``newer`` or ``different``; empty if equal or unknown.

    What is behind the numbers, such as ``rc1``, decides nothing: such versions are only ``different``.
    """
    if other in ("", own):
        return ""
    mine, theirs = _numbers(own), _numbers(other)
    if mine is None or theirs is None or mine == theirs:
        return "different"
    return "older" if theirs < mine else "newer"


def _numbers(version: str) -> list[int] | None:
    """Return the numbers at the beginning of *version*, without zeros at their end; None if there are none."""
    found = _NUMBERS.match(version)
    if found is None:
        return None
    numbers = [int(each) for each in found[0].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


Values = dict[str, Any]

NOT_READY = frozenset({"resync", "runtime", "store", "devices-hanging", "kubelet", "nri", "socket"})
"""Kinds of problems because of which the node is not ready: the kubelet's calls wait, fail or do not come, or are
decided without what the decision needs. Other problems concern single containers, cards or files."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about the whole node."""

    kind: str
    """A stable identifier for programs, such as ``bypass``."""
    text: str
    wrong: bool = True
    """Whether it reports a problem; False for a choice of the operator."""

    @property
    def stops_node(self) -> bool:
        """Whether the node is not ready because of it."""
        return self.wrong and self.kind in NOT_READY

    def to_json(self) -> Values:
        """As in the answer of `status`."""
        return {"kind": self.kind, "wrong": self.wrong, "text": self.text}


@dataclass(frozen=True, slots=True)
class Trouble:
    """An update that fails."""

    error: str
    failures: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A container that cannot be created."""

    container: str
    """NAMESPACE/POD/CONTAINER."""
    text: str
    """The last error message to the kubelet."""
    times: int
    at_s: float
    """When it was last refused, in seconds since the epoch."""
    sandbox: str = ""
    """The sandbox in which it cannot be created; empty for one that was created."""

    def to_json(self) -> Values:
        """As in the answer of `status`."""
        at = timestamp(self.at_s)
        return {"container": self.container, "time": at, "times": self.times, "text": self.text}


def rfc3339(at_s: float) -> str:
    """Format a time as UTC without fractions of a second, as Kubernetes does."""
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%dT%H:%M:%SZ}"


def timestamp(at_s: float) -> str:
    """Format a time as UTC with milliseconds, as in the log."""
    at = datetime.fromtimestamp(int(at_s), UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{int(at_s % 1 * 1000):03d}Z"
