"""``criproxy reload``: reads the policy file again; shows, tries and keeps another one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from criproxy.cli.client import ask, control_socket_option
from criproxy.cli.options import PathOption, duration, format_option
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.console import TROUBLE, indented, print_answer, print_lines, section
from criproxy.cli.render.topology_words import count
from criproxy.errors import CriproxyError
from criproxy.model.text.amounts import counted
from criproxy.model.text.bounded import bounded
from criproxy.model.text.sources import NODE_POLICY

TIMEOUT_S = 60.0
"""The daemon may need 5 s to find out what runs, and seconds to place a thousand containers."""
MAX_BYTES = 900_000
"""What fits into one request to the daemon, as JSON."""

Values = dict[str, Any]
_FILE_ALONE = (
    "FILE is for --dry-run and --try: 'criproxy reload --dry-run FILE' shows what it would do, and 'criproxy reload "
    "--try 10m FILE' brings it into effect for ten minutes"
)
_KEPT = {
    "different": "The content of the policy file is different: write this configuration to it, too.",
    "invalid": "The policy file cannot be used: write this configuration to it.",
    "missing": "There is no policy file: write this configuration to /etc/criproxy/policy.yaml.",
}
"""InForce.policy_file → what to say after a try was kept."""


@click.command(short_help="Read the policy file again, or try another one for a limited time.")
@click.argument("file", required=False, type=PathOption(), metavar="[FILE|DIR]")
@click.option("--dry-run", is_flag=True, help="Show what FILE would do, and change nothing.")
@click.option(
    *("--try", "time_s"),
    type=duration("30s, 10m or 168h"),
    metavar="DURATION",
    help="Bring FILE into effect for this long, such as 10m; then the former configuration comes back.",
)
@click.option("--keep", is_flag=True, help="Keep the configuration that is being tried.")
@format_option
@control_socket_option
def command(
    *, file: Path | None, dry_run: bool, time_s: float | None, keep: bool, output: str, control_socket: str
) -> None:
    """Make the daemon read its policy file again; or preview, try or keep another one.

    Without an option, the daemon reads its policy file immediately, as with 'systemctl reload'. This also ends a try.

    --dry-run FILE shows which containers would move if FILE came into effect now, and for which containers it would
    have no place. --try DURATION FILE brings FILE into effect. Unless you run 'criproxy reload --keep' in time, the
    former configuration comes back by itself, and the containers return to their former places, even if criproxy is
    restarted in the meantime. The policy file itself is never changed.

    Exit status: 0 success (--dry-run: every container would have a place), 1 the daemon rejects the file or cannot do
    what was asked (with --dry-run also: a container would have no place), 2 a usage error.
    """
    named = [name for name, given in (("--dry-run", dry_run), ("--try", time_s is not None), ("--keep", keep)) if given]
    if len(named) > 1:
        raise click.UsageError(f"{named[0]} and {named[1]} cannot be used together")
    if (file is not None) != (dry_run or time_s is not None):
        raise click.UsageError(_FILE_ALONE if file else f"{named[0]} needs a FILE")
    if file is None:
        values = ask(control_socket, "reload-keep" if keep else "reload", {}, TIMEOUT_S)
    elif dry_run:
        values = ask(control_socket, "reload-dry-run", _read(file), TIMEOUT_S)
    else:
        values = _try(control_socket, {**_read(file), "time_s": time_s})
    if dry_run or output == "json":
        print_answer(values, output, render)
    else:
        print_lines(_sentence(bounded(values)))
    raise SystemExit(int(dry_run and not (values["accepted"] and not values["refused"])))


def _try(control_socket: str, arguments: Values) -> Values:
    """Begin a try; whoever interrupts that hears how to find out whether it has begun."""
    try:
        return dict(ask(control_socket, "reload-try", arguments, TIMEOUT_S))
    except KeyboardInterrupt:
        text = "interrupted: the try may have begun; 'criproxy status' shows it, and 'criproxy reload' ends it"
        raise CriproxyError(text) from None


def _read(path: Path) -> Values:
    """Return the text of a policy file, and where it is, as the daemon takes them.

    Raises:
        CriproxyError: it cannot be read, or others than root could change it.
    """
    from criproxy.config.files import choose, read_text

    file = choose(Path(os.path.abspath(path)), os.uname().nodename).file  # noqa: PTH100 (resolve() follows links)
    text, mistakes = read_text(file)
    if text is None or mistakes:
        raise CriproxyError("\n".join(mistake.located(file) for mistake in mistakes))
    values = {"text": text, "source": str(file)}
    if len(json.dumps(values)) > MAX_BYTES:
        raise CriproxyError(f"{file} is too large to be sent to the daemon: make it the policy file instead")
    return values


def _sentence(values: Values) -> str:
    what = f"{values['file']}, hash {values['hash']}, policy {values['policy']}"
    if not values["hash"]:
        return "In effect: no policy file, so no container is placed."
    if values["until"]:
        until = f"until {values['until'][:19]}Z{_effects(values)}. 'criproxy reload --keep' keeps it"
        return f"Being tried: {what}, {until}, and 'criproxy reload' ends the try."
    if values["kept"]:
        if values["file"].startswith(NODE_POLICY):
            return f"Kept: {what}."
        but = _KEPT.get(values.get("policy_file", ""), _KEPT["different"])  # an earlier version does not say that
        return f"Kept: {what}. {but}"
    return f"In effect: {what}."


def _effects(values: Values) -> str:
    """Return what a try does to containers; a daemon of an earlier version does not say who has no place."""
    moved, no_place = values.get("moved", 0), values.get("no_place", 0)
    text = f"; {counted(moved, 'container')} {'moves' if moved == 1 else 'move'}" if moved else ""
    if not no_place:
        return text
    shares = "has no place and shares CPUs" if no_place == 1 else "have no place and share CPUs"
    return f"{text}; {counted(no_place, 'container')} {shares}, see 'criproxy status --check'"


MOST = 100
"""Containers of one kind that are listed."""


@words.renders
def render(values: Values) -> Iterator[rich.RenderableType]:
    """An answer of the control socket's `reload-dry-run`."""
    if not values["accepted"]:
        yield rich.Text(f"{values['file']} would be rejected, and nothing would change:", style=TROUBLE)
        yield indented(values["mistakes"][:MOST])
        return
    yield rich.Text(_head(values))
    yield from section("What else would change", values["changes"])
    yield from section("Containers that would move", [*words.first_lines(values["moved"], MOST, words.move)])
    title = "Containers without a place, which would share CPUs"
    if values["apply"] == "new":
        title = "Containers that keep running, but would be refused when they are created again"
    yield from section(title, [*words.first_lines(values["refused"], MOST, itemgetter("text"))], TROUBLE)


def _head(values: Values) -> str:
    what = f"{values['file']} (hash {values['hash']}, policy {values['policy']}, apply: {values['apply']})"
    if values["same"]:
        return f"{what} is equivalent to the configuration in effect: nothing would change."
    moved, refused = count(len(values["moved"]), "container"), count(len(values["refused"]), "container")
    released = " This would also end the release of the node." if values["ends_release"] else ""
    return f"{what} would come into effect: {moved} would move, and {refused} would have no place.{released}"
