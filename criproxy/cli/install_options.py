"""Options and signals that `criproxy install` and `criproxy uninstall` share."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from criproxy.cli.path_type import PathOption

F = TypeVar("F", bound=Callable[..., Any])


def host_options(function: F) -> F:
    """Add the options of both commands."""
    dry_run = click.option("--dry-run", is_flag=True, help="Print the steps, and change nothing.")
    host_root = click.option(
        "--host-root",
        type=PathOption(folder=True),
        default="/",
        show_default=True,
        help="The node's root directory, in a container that manages its host; programs then run by nsenter.",
    )
    return dry_run(host_root(function))


@contextmanager
def going_back_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process by an exception, so that the steps are taken back."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    former = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
