"""The commands of the control socket: the replies of the daemon to its clients, and recordings."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from criproxy import __version__
from criproxy.model.text.notices import Values, timestamp


def collector(command: str) -> Callable[..., dict[str, Any]]:
    """Return the function that answers a *command* which needs only a `Situation`: ``collect`` of the view so named."""
    collect: Callable[..., dict[str, Any]] = import_module(f"criproxy.api.views.{command}").collect
    return collect


def head(source: str, at_s: float, pid: int | None = None, started: str | None = None) -> Values:
    """Return what each answer begins with: which daemon answers, if one does, and of when it is."""
    return {
        "source": source,
        "host": os.uname().nodename,
        "time": timestamp(at_s),
        "version": __version__,
        "pid": pid,
        "started": started,
    }
