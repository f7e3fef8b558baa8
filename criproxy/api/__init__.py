"""The commands of the control socket: the replies of the daemon to its clients, and recordings."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def collector(command: str) -> Callable[..., dict[str, Any]]:
    """Return the function that answers a *command* which needs only a `Situation`: ``collect`` of the view so named."""
    collect: Callable[..., dict[str, Any]] = import_module(f"criproxy.api.views.{command}").collect
    return collect
