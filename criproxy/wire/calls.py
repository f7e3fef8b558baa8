"""What the data plane and the handlers of calls say to each other.

A `Table` names the calls that are touched. A call that is not in it, or whose `Rule` is empty,
passes without being decoded.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from time import monotonic

from criproxy.errors import StatusCode


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One gRPC call on one connection; handlers may keep their own state in `context`."""

    method: str
    """The path, such as ``/runtime.v1.RuntimeService/CreateContainer``."""
    connection: int
    """Number of the kubelet's connection, unique in this process."""
    stream: int
    """HTTP/2 stream id; with `connection` it names the call."""
    encoding: str
    """grpc-encoding of the request: ``identity``, ``gzip`` or another."""
    timeout_s: float = inf
    """Its deadline, from `begun_s` on."""
    request: bytes | None = None
    """The request message as the client sent it, decompressed; None where it was too large or malformed."""
    begun_s: float = field(default_factory=monotonic)
    """When its headers came, on the monotonic clock."""
    context: object = None
    """For the handlers: nothing in `wire` reads it."""
    rule: "Rule | None" = None
    """What is done to it: its method's rule when it began, whatever the table says by now."""

    def __repr__(self) -> str:
        return f"<Call {self.method} {self.connection}/{self.stream}>"


@dataclass(frozen=True, slots=True)
class Proceed:
    """Send the held call on: with *message* instead of its own, or (None) with its very bytes."""

    message: bytes | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """End the held call with a status; the runtime never sees its message."""

    code: StatusCode
    text: str


Verdict = Proceed | Refuse


class OutcomeKind(Enum):
    """How a watched call ended, as far as the wire can tell."""

    OK = "ok"
    """A message came before the end."""
    FAILED = "failed"
    """Trailers without a message, within the call's deadline: the runtime refused it."""
    UNKNOWN = "unknown"
    """Reset, passed deadline or lost connection after the request went out: it may have happened."""
    NOT_SENT = "not sent"
    """Ended before the runtime got the message (cancelled while held, refused, GOAWAY): it did not happen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a call; *reply* is its first reply message (decompressed), where there was one."""

    kind: OutcomeKind
    reply: bytes | None = None


HoldHandler = Callable[[Call, bytes], Awaitable[Verdict]]
"""Gets the request message of a held call; cancelled if the call ends first."""
DoneHandler = Callable[[Call, Outcome], None]
"""Told once for every call of its method, in arrival order of the ends on a connection. Must not block."""
EachHandler = Callable[[Call, bytes], None]
"""Told every reply message of a call (server streams) as it passes. Must not block."""
EditHandler = Callable[[Call, bytes], bytes | None]
"""Returns the new reply message, or None for the same bytes. Synchronous: replies keep their order."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done to the calls of one method. All handlers run on the event loop's thread."""

    answer: Refuse | None = None
    """Ends the call as soon as its headers come, for methods that no runtime knows: one could say so before a handler
    of `hold` has decided. Of the other fields, only `done` has an effect beside it."""
    hold: HoldHandler | None = None
    done: DoneHandler | None = None
    each: EachHandler | None = None
    edit: EditHandler | None = None

    @property
    def way(self) -> str:
        """The label of metrics and logs: the strongest thing done to the call."""
        if self.hold or self.answer:
            return "hold"
        if self.edit:
            return "edit"
        return "watch" if self.done or self.each else "pass"


Table = Mapping[str, Rule]
"""Method path → rule."""

ErrorHandler = Callable[[Call, bytes | None, Exception], Awaitable[Verdict]]
"""Decides what becomes of a held call whose handler failed or whose message cannot be read (None), and logs it."""
