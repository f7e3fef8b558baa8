"""Manual pages, made from what `--help` says."""

import gzip
import inspect
import time
from collections.abc import Iterator
from pathlib import Path

import click

from criproxy.cli import main
from packager.source import date_s, version

PROGRAM = "criproxy"
_AS_WRITTEN = "\b"


def write(folder: Path) -> None:
    """Write a page for the program and one for each command to *folder*, packed as Debian wants it."""
    folder.mkdir(parents=True)
    for name, text in pages():
        (folder / f"{name}.1.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page."""
    with main.make_context(PROGRAM, [], resilient_parsing=True) as context:
        yield PROGRAM, _page(context, tuple(_commands(context)))
        yield from _of_commands(context)


def _of_commands(parent: click.Context) -> Iterator[tuple[str, str]]:
    for name, command in _commands(parent):
        with command.make_context(name, [], parent, resilient_parsing=True) as context:
            yield context.command_path.replace(" ", "-"), _page(context, tuple(_commands(context)))
            yield from _of_commands(context)


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, command


def _page(context: click.Context, commands: tuple[tuple[str, click.Command], ...]) -> str:
    command = context.command
    name = context.command_path.replace(" ", "-")
    day = time.strftime("%Y-%m-%d", time.gmtime(date_s()))
    lines = [f'.TH "{name.upper()}" 1 "{day}" "criproxy {version()}" "criproxy"']
    lines += [".SH NAME", f"{_escaped(name)} \\- {_escaped(command.get_short_help_str(200))}"]
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f".B {_escaped(context.command_path)}", _escaped(usage)]
    lines += [".SH DESCRIPTION", *_paragraphs(command.help or "")]
    records = (each.get_help_record(context) for each in command.get_params(context) if isinstance(each, click.Option))
    lines += _list("OPTIONS", (record for record in records if record is not None))
    lines += _list("COMMANDS", ((f"{name}-{each}(1)", found.get_short_help_str(200)) for each, found in commands))
    if context.parent is not None:
        lines += [".SH SEE ALSO", f".BR {PROGRAM} (1)"]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        if paragraph.startswith(_AS_WRITTEN):
            yield from (".nf", *map(_escaped, paragraph.splitlines()[1:]), ".fi")
        else:
            yield _escaped(" ".join(paragraph.split()))


def _list(heading: str, entries: Iterator[tuple[str, str]]) -> list[str]:
    lines = [line for term, text in entries for line in (".TP", f"\\fB{_escaped(term)}\\fR", _escaped(text))]
    return [f".SH {heading}", *lines] if lines else []


def _escaped(text: str) -> str:
    """*text* as roff prints it: its lines shall not begin with a command, and its hyphens can be copied."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in safe.splitlines())
