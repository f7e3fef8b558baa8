"""How the embedded runtime says no: one exception, with containerd's codes and texts."""

from criproxy.errors import CriproxyError, StatusCode


class Refusal(CriproxyError):
    """Ends a call with *code* and *text*; nothing is sent beside them."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = code

    @property
    def text(self) -> str:
        """The grpc-message."""
        return str(self)

    @property
    def missing(self) -> bool:
        """Whether there is no such object, which removals take for success."""
        return self.status is StatusCode.NOT_FOUND

    def within(self, prefix: str) -> "Refusal":
        """Return the same refusal with *prefix* before its text, as containerd wraps errors."""
        return Refusal(self.status, f"{prefix}: {self}")


def unknown(text: str) -> Refusal:
    """Return what containerd answers to most mistakes: Go errors without a code become UNKNOWN."""
    return Refusal(StatusCode.UNKNOWN, text)


def not_found() -> Refusal:
    """Return the bare error of a missing object, to be wrapped."""
    return Refusal(StatusCode.NOT_FOUND, "not found")
