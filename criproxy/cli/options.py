"""Options and types of options that several commands have, and the log that some of these set up."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from criproxy.errors import CriproxyError

if TYPE_CHECKING:
    from criproxy.process.log import LineWriter

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "console", "journal", "json")
F = TypeVar("F", bound=Callable[..., Any])


class PathOption(click.Path):
    """A path that need not exist. Whether it is readable is checked when it is read, which gives a better error.

    Args:
        folder: it is a directory, if it exists.
        exists: it must exist: what is missing below it is no error, so that a mistyped path would go unnoticed.
    """

    def __init__(self, *, folder: bool = False, exists: bool = False) -> None:
        super().__init__(exists=exists, file_okay=not folder, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """Convert to a path; an empty value is an unset variable in a script, and not the working directory."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


class WholeNumber(click.IntRange):
    """A whole number between limits."""

    name = "whole number"


class Amount(click.ParamType[Any]):
    """An amount with a unit, as people write it; *parse* names a function of `model.text.amounts`."""

    def __init__(self, name: str, parse: str, *examples: str) -> None:
        self.name = name
        self._parse = parse
        self._examples = examples
        """For the message about a wrong value, if not all amounts are allowed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """Convert a text to a number."""
        from criproxy.model.text import amounts

        try:
            return getattr(amounts, self._parse)(str(value), *self._examples)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def duration(*examples: str) -> Amount:
    """Return the type of a number of seconds, written like ``10m``."""
    return Amount("duration", "parse_seconds", *examples)


SIZE = Amount("size", "parse_bytes")
"""A number of bytes, written like ``64Mi``."""
CPU = Amount("cpu", "parse_milli")
"""Milli-CPU, written such as ``8``, ``1.5`` and ``250m``."""


def host_root_option(text: str, *, exists: bool = False) -> Callable[[F], F]:
    """Return the option ``--host-root``, with *text* as its help; *exists*: it must."""
    kind = PathOption(folder=True, exists=exists)
    return click.option("--host-root", type=kind, default="/", show_default=True, help=text)


def runtime_endpoint_option(text: str) -> Callable[[F], F]:
    """Return the option with the container runtime's socket, with *text* as its help."""
    default = "unix:///run/containerd/containerd.sock"
    return click.option("--runtime-endpoint", default=default, show_default=True, metavar="ADDRESS", help=text)


def config_option(command: F) -> F:
    """Add ``--config``."""
    return click.option(
        "--config",
        type=PathOption(),
        metavar="FILE|DIR",
        help="Policy file, or a directory of policy files.  [default: /etc/criproxy/policy.yaml, if it exists]",
    )(command)


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


http_option = _http_option("/metrics, /healthz and /readyz")
format_option = click.option(
    "--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


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


@contextmanager
def program_log(log_format: str, log_level: str) -> "Iterator[LineWriter]":
    """Set up the log for a program beside the daemon; say why the program fails, and exit with that status."""
    from criproxy.process import log  # first: prevents structlog from loading what we never use

    writer = log.setup(log_format, log_level)
    try:
        yield writer
    except Exception as error:
        logger = log.structlog.get_logger("criproxy")
        if not isinstance(error, CriproxyError):
            logger.critical("failed because of a bug in criproxy", error=repr(error), exc_info=error)
            raise click.exceptions.Exit(CriproxyError.exit_status) from error
        if log.chosen(log_format) == "console":
            from criproxy.cli.render.console import print_lines

            print_lines(str(error), err=True)
        else:
            for line in str(error).splitlines():
                logger.critical("cannot serve", error=line)
        raise click.exceptions.Exit(error.exit_status) from error


def host_options(function: F) -> F:
    """Add the options of both commands."""
    dry_run = click.option("--dry-run", is_flag=True, help="Print the steps, and change nothing.")
    text = "The node's root directory, if the command runs in a container that manages its host; it then runs "
    return dry_run(host_root_option(f"{text}programs through nsenter.", exists=True)(function))


def check_root(*, dry_run: bool) -> None:
    """Return if this process may change a node.

    Raises:
        CriproxyError: it may not: without root, the command would fail at some later file or program.
    """
    if not dry_run and os.geteuid() != 0:
        raise CriproxyError("this command needs root, except with --dry-run")
