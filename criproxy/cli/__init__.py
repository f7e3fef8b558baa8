"""The command line: one file per command, loaded when it is called, and the one place that prints errors and exits."""

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from criproxy import __version__
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded_text

_MAX_ERROR_CHARS = 8000

_FOLDERS = {
    "offline": "check completion convert schema simulate topology",
    "operate": "agent bypass controls device-plugin install record release reload serve support-bundle uninstall",
    "queries": "devices events explain fit history recommend status top usage who",
}
COMMANDS = {
    name: f"criproxy.cli.{folder}.{name.replace('-', '_')}"
    for folder, names in _FOLDERS.items()
    for name in names.split()
}
"""Command → its module, which has it as `command`."""


class LazyGroup(click.Group):
    """Imports the module of a command only when it is called, so that `serve` starts fast."""

    modules: Mapping[str, str] = COMMANDS
    """Command → its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command *cmd_name*."""
        module = self.modules.get(cmd_name)
        return import_module(module).command if module is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if there is none, name those that were probably meant."""
        if args[0] not in self.modules and not ctx.resilient_parsing:
            from difflib import get_close_matches

            if near := get_close_matches(args[0], self.modules):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command; print our errors as one sentence, and exit with their status."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            options = error.ctx.command.params if error.ctx else []
            if error.option_name == "--json" and any("--format" in each.opts for each in options):
                hint = f"{error.message} Did you mean '--format json'?"
                raise click.NoSuchOption(error.option_name, hint, ctx=error.ctx) from error
            raise
        except CriproxyError as error:
            from criproxy.cli.render.console import print_lines

            print_lines(f"Error: {bounded_text(str(error), _MAX_ERROR_CHARS)}", err=True)
            ctx.exit(error.exit_status)

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run the program; print errors of the system as one sentence, and exit with status 1."""
        _open_closed_streams()
        if not os.environ.get("COLUMNS", "1").strip("0"):
            del os.environ["COLUMNS"]  # a terminal of unknown width: with 0 columns, nothing would be shown
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            _print_os_error(error)
            _forget_output()
            sys.exit(CriproxyError.exit_status)


def _open_closed_streams() -> None:
    """Open /dev/null for closed standard streams, so that no socket or file of ours gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)


def _forget_output() -> None:
    """Drop what cannot be written: at its end, the interpreter would try once more, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open to the end)


def _print_os_error(error: OSError) -> None:
    """Print an error of the system, if standard error works."""
    from criproxy.cli.render.console import print_lines

    where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    with suppress(OSError):
        print_lines(f"Error: {bounded_text((error.strerror or repr(error)) + where, _MAX_ERROR_CHARS)}", err=True)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="criproxy")
def main() -> None:
    """A CRI proxy that decides which CPUs, memory and devices each container on this node gets.

    Exit status: 0 success, 1 failure or a negative answer, 2 usage error.
    """
