"""The options of all programs that run as a service: policy file, HTTP address, and log."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from criproxy.cli.options.path_type import PathOption

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
    return _http_option("/metrics, /healthz and /readyz")(command)


def page_options(command: F) -> F:
    """Add ``--http`` with the page, and ``--http-token-file``."""
    token_file = click.option(
        "--http-token-file",
        type=PathOption(),
        metavar="FILE",
        help="File with the token that clients of the web page need. Without it, the page is open on loopback and on a "
        "Unix socket, and closed on other addresses.",
    )
    return _http_option("the web page, /metrics, /healthz and /readyz")(token_file(command))


def _http_option(paths: str) -> Callable[[F], F]:
    text = f"Serve {paths} on HOST:PORT, :PORT (loopback) or unix:///PATH.  [default: none]"
    return click.option("--http", metavar="ADDRESS", help=text)


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
