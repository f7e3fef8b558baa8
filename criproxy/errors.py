"""The few errors that a caller tells apart, each with an exit status and a gRPC code.

A class belongs here only if somebody reacts to it in its own way. Everything else is a built-in.
"""

from enum import IntEnum


class StatusCode(IntEnum):
    """gRPC status codes, by the numbers of the gRPC specification."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CriproxyError(Exception):
    """A failure with a sentence for people: what, where, and what would be right."""

    exit_status = 1
    code = StatusCode.INTERNAL


class ConfigError(CriproxyError):
    """A configuration that cannot be used; the text says file, place and mistake."""

    code = StatusCode.FAILED_PRECONDITION


class UsageError(CriproxyError):
    """A command called in a wrong way."""

    exit_status = 2


class Refused(CriproxyError):
    """A container that a policy does not place: its answer, and no failure of criproxy."""


class NotEnough(Refused):
    """A container that does not fit; the text names it, what it asked and what is free."""

    code = StatusCode.RESOURCE_EXHAUSTED


class BadAnnotation(Refused):
    """A pod annotation that cannot be understood; the text names it, its value and what would be right."""

    code = StatusCode.INVALID_ARGUMENT


class WireError(CriproxyError):
    """A peer that breaks HTTP/2 or gRPC framing; *http2_code* goes into the GOAWAY (RFC 9113, 7)."""

    def __init__(self, text: str, http2_code: int = 1) -> None:
        super().__init__(text)
        self.http2_code = http2_code


class Fault(CriproxyError):
    """A failure of criproxy itself, not of its user or of the runtime; those that repeat switch the bypass on."""

    code = StatusCode.UNAVAILABLE
    hung = False
    """Whether it took so long that few of them are enough."""
    briefly = ""
    """What the kubelet hears where the text has that of a cause, which is for the log; empty: the text has none."""


class StoreError(Fault):
    """State that could not be kept (full or read-only disk, a locked or broken database)."""

    briefly = "the state could not be stored"


def reason_of(error: BaseException, *, with_path: bool = False) -> str:
    """Return what went wrong, for people: of an error of the system its sentence, without number and notation.

    Args:
        error: what was raised.
        with_path: whether to name the file of an error of the system; not if the sentence around it does.
    """
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    path = f": {error.filename}" if with_path and isinstance(error.filename, str) else ""
    return f"{error.strerror}{path}"


def for_kubelet(error: Exception) -> str:
    """What the kubelet, and with it whoever may read the events of a pod, hears of *error*: a sentence of ours."""
    if not isinstance(error, CriproxyError):
        return "criproxy failed; its log has the cause"
    if isinstance(error, Fault) and error.briefly and error.__cause__ is not None:
        return f"{error.briefly}; criproxy's log has the cause"
    return str(error)
