"""Options that `criproxy install` and `criproxy uninstall` share."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from criproxy.cli.options.path_type import PathOption
from criproxy.errors import CriproxyError

F = TypeVar("F", bound=Callable[..., Any])


def host_options(function: F) -> F:
    """Add the options of both commands."""
    dry_run = click.option("--dry-run", is_flag=True, help="Print the steps, and change nothing.")
    host_root = click.option(
        "--host-root",
        type=PathOption(folder=True, exists=True),
        default="/",
        show_default=True,
        help="The node's root directory, if the command runs in a container that manages its host; it then runs "
        "programs through nsenter.",
    )
    return dry_run(host_root(function))


def check_root(*, dry_run: bool) -> None:
    """Return if this process may change a node.

    Raises:
        CriproxyError: it may not: without root, the command would fail at some later file or program.
    """
    if not dry_run and os.geteuid() != 0:
        raise CriproxyError("this command needs root, except with --dry-run")
