"""The options of all programs that run as a service: policy file, HTTP address, and log."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from criproxy.cli.path_type import PathOption

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "console", "journal", "json")
F = TypeVar("F", bound=Callable[..., Any])


def config_option(command: F) -> F:
    """Add ``--config``."""
    return click.option(
        "--config",
        type=PathOption(),
        metavar="FILE|DIR",
        help="Policy file, or a directory of policy files.  [default: /etc/criproxy/policy.yaml, if it exists]",
    )(command)


def http_option(command: F) -> F:
    """Add ``--http``."""
    return click.option(
        "--http",
        metavar="ADDRESS",
        help="Serve /metrics, /healthz and /readyz on HOST:PORT, :PORT (loopback) or unix:///PATH.  [default: off]",
    )(command)


def log_options(command: F) -> F:
    """Add ``--log-level`` and ``--log-format``."""
    command = click.option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        default="auto",
        show_default=True,
        help="auto: journal if standard error goes to systemd, else console.",
    )(command)
    return click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True)(command)
